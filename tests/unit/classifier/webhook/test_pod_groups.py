"""StatefulSets and LeaderWorkerSets whose pods are groups: what their templates get, and what has to stay."""

from copy import deepcopy
from typing import Any

import pytest

from services.classifier.refusal import RefusedError
from services.classifier.webhook.context import NamespaceContext
from services.classifier.webhook.mutation import mutate
from services.classifier.webhook.updates import review_update
from shared.contracts.kube.names import PRIORITY_CLASS_LABEL, QUEUE
from shared.integrations import Integrations, opted_documents
from shared.integrations.pointers import found, tokens, written
from tests.unit.classifier.webhook.objects import rules

Json = dict[str, Any]
KUEUE = "kueue.x-k8s.io"
GROUP, TOTAL = f"{KUEUE}/pod-group-name", f"{KUEUE}/pod-group-total-count"
EARLY, SERVING = f"{KUEUE}/pod-group-fast-admission", f"{KUEUE}/pod-group-serving"
PARENT = f"{KUEUE}/pod-suspending-parent"
BY, INDEX = "sluicegate.dev/pod-group-by", "leaderworkerset.sigs.k8s.io/group-index"
WORKER, LEADER = (
    ("spec", "leaderWorkerTemplate", f"{role}Template") for role in ("worker", "leader")
)


def in_force() -> NamespaceContext:
    known = Integrations()
    for document in opted_documents(("statefulset", "leaderworkerset.x-k8s.io/leaderworkerset")):
        known.apply(document)
    return NamespaceContext(integrations=known)


CONTEXT = in_force()


def template(cpu: str = "1", image: str = "i") -> Json:
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}


def stateful_set(name: str = "web", replicas: int | None = 3, **metadata: Any) -> Json:
    spec: Json = {"template": template(), "selector": {"matchLabels": {"app": "web"}}}
    if replicas is not None:
        spec["replicas"] = replicas
    own = {"name": name, "namespace": "n", "uid": "u", "labels": {QUEUE: "q"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": own | metadata,
        "spec": spec,
    }


def leader_worker_set(*, leader: bool = True, **more: Any) -> Json:
    templates = {"size": 4, "workerTemplate": template()}
    if leader:
        templates["leaderTemplate"] = template("2")
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "serve", "namespace": "n", "labels": {QUEUE: "q"}},
        "spec": {"replicas": 2, "leaderWorkerTemplate": templates, **more},
    }


def created(obj: Json) -> Json:
    made: Json = mutate(obj, rules(), context=CONTEXT).object
    return made


def changed(old: Json, new: Json) -> Json:
    integration = CONTEXT.integrations.find(
        group=old["apiVersion"].partition("/")[0], kind=old["kind"]
    )
    assert integration is not None
    made: Json = review_update(new, old, integration, user="jane", context=CONTEXT).object
    return made


def marks(obj: Json, *path: str) -> tuple[Json, Json]:
    metadata = found(obj, (*(path or ("spec", "template")), "metadata"))
    return metadata.get("labels") or {}, metadata.get("annotations") or {}


def test_pods_of_a_stateful_set_are_one_group_that_begins_with_the_first() -> None:
    labels, annotations = marks(
        created(stateful_set(labels={QUEUE: "q", PRIORITY_CLASS_LABEL: "p"}))
    )
    group = labels.pop(GROUP)
    assert group.startswith("statefulset-web-")
    assert labels == {"app": "web", QUEUE: "q", PRIORITY_CLASS_LABEL: "p"}
    assert annotations == {TOTAL: "3", EARLY: "true", SERVING: "true", PARENT: "statefulset"}


def test_names_of_groups_differ_and_fit_into_a_label() -> None:
    names = ["web", "web-0", "a" * 200, "a" * 199 + ".b", "x" * 44 + "." + "y" * 20]
    groups = [marks(created(stateful_set(name)))[0][GROUP] for name in names]
    assert len({*groups}) == len(names)
    assert max(map(len, groups)) <= 57, "an index is to fit, too"
    assert not [one for one in groups if ".-" in one]


def test_each_replica_of_a_leader_worker_set_is_a_group_of_its_leader_and_its_workers() -> None:
    made = created(leader_worker_set())
    for path in (WORKER, LEADER):
        labels, annotations = marks(made, *path)
        parent = annotations.pop(PARENT)
        assert parent == "leaderworkerset.x-k8s.io/leaderworkerset"
        assert annotations == {TOTAL: "4", EARLY: "false", SERVING: "true", BY: INDEX}
        metadata = {"labels": {**labels, INDEX: "1"}, "annotations": annotations}
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": template()["spec"]}
        pod = created({**pod, "metadata": {"name": "serve-1", "namespace": "n", **metadata}})
        assert pod["metadata"]["labels"][GROUP] == labels[GROUP] + "-1"
        assert BY not in pod["metadata"]["annotations"]
        assert created(pod)["metadata"]["labels"] == pod["metadata"]["labels"], "asked again"


def test_workers_alike_their_leader_are_counted_with_it() -> None:
    made = created(leader_worker_set(leader=False, startupPolicy="LeaderReady"))
    assert marks(made, *WORKER)[1][EARLY] == "true"
    assert found(made, LEADER) is None


@pytest.mark.parametrize(
    "obj",
    [
        stateful_set(labels={}),
        stateful_set(
            ownerReferences=[
                {"apiVersion": "v1", "kind": "K", "name": "k", "uid": "k", "controller": True}
            ]
        ),
    ],
    ids=["it names no queue", "another controller made it"],
)
def test_stateful_set_is_left_alone(obj: Json) -> None:
    assert created(obj) == obj


def test_stateful_set_of_no_pods_gets_its_group_once_it_has_some() -> None:
    none = created(stateful_set(replicas=0))
    assert GROUP not in marks(none)[0]
    some = written(none, ("spec", "replicas"), 2)
    assert marks(changed(none, some))[1][TOTAL] == "2"
    assert marks(changed(some, written(some, ("spec", "replicas"), 0)))[1] == marks(some)[1]


@pytest.mark.parametrize(
    ("obj", "why"),
    [
        (leader_worker_set(startupPolicy="LeaderReady"), r"spec.startupPolicy: 'LeaderReady'"),
        (stateful_set(name="", generateName="web-"), r"metadata.generateName: .*metadata.name"),
        (
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "serve-1",
                    "namespace": "n",
                    "labels": {QUEUE: "q", GROUP: "g"},
                    "annotations": {TOTAL: "4", BY: INDEX},
                },
                "spec": template()["spec"],
            },
            r"group-index\]: '': .*a short DNS label",
        ),
    ],
    ids=["workers wait for a leader that waits", "no name yet", "a pod without its index"],
)
def test_what_cannot_be_grouped_is_refused_at_creation(obj: Json, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        created(obj)


def test_object_whose_pods_could_not_wait_is_refused_with_the_remedy() -> None:
    alone = Integrations()
    for one in opted_documents(("deployment",)):
        if one["metadata"]["name"] != "pods":
            alone.apply(one)
    obj = {**stateful_set(), "kind": "Deployment"}
    with pytest.raises(RefusedError, match="list the framework `pod`"):
        mutate(obj, rules(), context=NamespaceContext(integrations=alone))


_SET = created(stateful_set())
_LEADERS = created(leader_worker_set())
REFUSED: dict[str, tuple[Json, str, Any, str]] = {
    "other queue": (_SET, f"/metadata/labels/{QUEUE.replace('/', '~1')}", "r", "must stay 'q'"),
    "no queue": (_SET, "/metadata/labels", {}, "must stay 'q': scale it to 0 first"),
    "more pods": (_SET, "/spec/replicas", 4, "web: spec.replicas: 4: must stay 3: scale it to 0 f"),
    "fewer pods": (_SET, "/spec/replicas", 1, "1: must stay 3: scale it to 0 first"),
    "other requests": (_SET, "/spec/template", template("2"), "spec.template.spec: what its pods"),
    "a bigger group": (
        _LEADERS,
        "/spec/leaderWorkerTemplate/size",
        5,
        "erTemplate.size: 5: must stay 4",
    ),
    "another leader": (_LEADERS, "/spec/leaderWorkerTemplate/leaderTemplate", template("3"), "ask"),
    "no leader": (_LEADERS, "/spec/leaderWorkerTemplate/leaderTemplate", None, "come or go"),
}


@pytest.mark.parametrize(("old", "path", "value", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_change_that_the_group_would_not_follow_is_refused(
    old: Json, path: str, value: Any, why: str
) -> None:
    with pytest.raises(RefusedError, match=why):
        changed(old, written(deepcopy(old), tokens(path), value))


ALLOWED: dict[str, tuple[Json, str, Any]] = {
    "to no pods": (_SET, "/spec/replicas", 0),
    "a new image": (_SET, "/spec/template", template(image="j")),
    "more groups": (_LEADERS, "/spec/replicas", 5),
}


@pytest.mark.parametrize(("old", "path", "value"), ALLOWED.values(), ids=ALLOWED.keys())
def test_change_that_the_group_follows_keeps_its_marks(old: Json, path: str, value: Any) -> None:
    new = changed(old, written(deepcopy(old), tokens(path), value))
    where = WORKER if old is _LEADERS else ("spec", "template")
    assert marks(new, *where)[0] == marks(old, *where)[0]


def test_template_of_an_older_release_gets_no_new_annotation_that_would_make_new_pods() -> None:
    older = written(_SET, ("spec", "template", "metadata", "annotations", PARENT), None)
    del older["spec"]["template"]["metadata"]["annotations"][PARENT]
    new = written(older, ("metadata", "labels", "team"), "a")
    assert changed(older, new)["spec"] == older["spec"]
    unlabelled = stateful_set(replicas=0, labels={})
    queued = written(unlabelled, ("metadata", "labels"), {QUEUE: "q"})
    assert marks(changed(unlabelled, queued))[1][PARENT] == "statefulset"
    again = written(_SET, ("spec", "template"), template())
    assert marks(changed(_SET, again)) == marks(_SET), "applied again as it was written"


def test_set_that_was_scaled_down_keeps_its_number_until_its_pods_are_gone() -> None:
    old = {**written(_SET, ("spec", "replicas"), 0), "status": {"replicas": 1}}
    new = written(old, ("spec", "replicas"), 2)
    with pytest.raises(RefusedError, match="2: must stay 0"):
        changed(old, new)
    gone = {**old, "status": {"replicas": 0}}
    assert marks(changed(gone, {**new, "status": gone["status"]}))[1][TOTAL] == "2"
