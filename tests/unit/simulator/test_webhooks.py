"""Admission webhooks, called for real over HTTPS."""

import asyncio
from dataclasses import dataclass

import pytest

from services.simulator.behaviour.tekton.admission import TektonAdmission
from services.simulator.cluster.api import Api, DeleteOptions
from services.simulator.cluster.errors import ApiError
from services.simulator.cluster.kinds.registry import Obj
from tests.unit.simulator.builders import config_map, kind, pipeline_run
from tests.unit.simulator.webhooks import Reviewer, configure, create, hook


def label(key: str) -> list[Obj]:
    return [{"op": "add", "path": f"/metadata/labels/{key}", "value": "x"}]


async def test_mutation_is_stored(cluster: Api, reviewer: Reviewer) -> None:
    await configure(cluster, hook(reviewer))
    reviewer.patches["/m"] = label("a")

    obj = await create(cluster, config_map(labels={"own": "y"}))

    assert obj["metadata"]["labels"] == {"own": "y", "a": "x"}
    (asked,) = reviewer.asked
    assert asked["operation"] == "CREATE"
    assert asked["object"]["data"] == {"k": "v"}
    assert "uid" not in asked["object"]["metadata"], "mutation comes before the server's own fields"
    assert asked["oldObject"] is None
    assert asked["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert asked["namespace"] == "default"


async def test_webhook_configurations_are_called_in_the_order_of_their_names(
    cluster: Api, reviewer: Reviewer
) -> None:
    for name in ("zebra", "ant", "mole"):
        await configure(cluster, hook(reviewer, name), name=name)

    await create(cluster)

    assert reviewer.paths == ["/ant", "/mole", "/zebra"]


async def test_webhook_receives_the_changes_of_earlier_ones(
    cluster: Api, reviewer: Reviewer
) -> None:
    await configure(cluster, hook(reviewer, "a"), hook(reviewer, "b"))
    reviewer.patches["/a"] = [{"op": "add", "path": "/data/x", "value": "1"}]

    await create(cluster)

    assert reviewer.asked[1]["object"]["data"] == {"k": "v", "x": "1"}


async def test_kueues_webhook_comes_before_tektons_defaults(
    cluster: Api, reviewer: Reviewer
) -> None:
    cluster.admission.plugins.append(TektonAdmission())
    rule = {"apiGroups": ["tekton.dev"], "resources": ["pipelineruns"]}
    await configure(cluster, hook(reviewer, rule=rule), name="tekton-kueue-webhook")

    runs = kind(cluster, "pipelineruns", "tekton.dev")
    stored = await cluster.create(runs, "v1", "default", pipeline_run())

    assert "timeouts" not in reviewer.asked[0]["object"]["spec"]
    assert stored.obj["spec"]["timeouts"] == {"pipeline": "1h0m0s"}


async def test_validation_sees_the_object_as_it_will_be_stored(
    cluster: Api, reviewer: Reviewer
) -> None:
    await configure(cluster, hook(reviewer, "m"))
    await configure(cluster, hook(reviewer, "v"), mutating=False)
    reviewer.patches["/m"] = [{"op": "add", "path": "/data/x", "value": "1"}]

    obj = await create(cluster)

    assert reviewer.paths == ["/m", "/v"]
    assert reviewer.asked[1]["object"]["data"] == {"k": "v", "x": "1"}
    assert reviewer.asked[1]["object"]["metadata"]["uid"] == obj["metadata"]["uid"]


@dataclass(frozen=True, kw_only=True)
class Aim:
    members: Obj
    asked: bool


AIMS = {
    "another resource": Aim(members={"rule": {"resources": ["secrets"]}}, asked=False),
    "every resource": Aim(members={"rule": {"resources": ["*"]}}, asked=True),
    "every group": Aim(members={"rule": {"apiGroups": ["*"]}}, asked=True),
    "another operation": Aim(members={"rule": {"operations": ["UPDATE"]}}, asked=False),
    "cluster-wide kinds only": Aim(members={"rule": {"scope": "Cluster"}}, asked=False),
    "objects with a label": Aim(
        members={"objectSelector": {"matchLabels": {"x": "1"}}}, asked=True
    ),
    "objects with another label": Aim(
        members={"objectSelector": {"matchLabels": {"x": "2"}}}, asked=False
    ),
    "this namespace": Aim(
        members={"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}},
        asked=True,
    ),
    "all namespaces but this": Aim(
        members={
            "namespaceSelector": {
                "matchExpressions": [
                    {
                        "key": "kubernetes.io/metadata.name",
                        "operator": "NotIn",
                        "values": ["default"],
                    }
                ]
            }
        },
        asked=False,
    ),
}


@pytest.mark.parametrize("case", AIMS.values(), ids=AIMS.keys())
async def test_webhook_is_called_only_for_matching_requests(
    cluster: Api, reviewer: Reviewer, case: Aim
) -> None:
    await configure(cluster, hook(reviewer, **case.members))

    await create(cluster, config_map(labels={"x": "1"}))

    assert bool(reviewer.asked) is case.asked


@pytest.mark.parametrize(("policy", "seen"), [("Equivalent", ["v1beta1"]), ("Exact", [])])
async def test_equivalent_version_is_converted_for_the_webhook(
    cluster: Api, reviewer: Reviewer, policy: str, seen: list[str]
) -> None:
    rule = {
        "apiGroups": ["kueue.x-k8s.io"],
        "apiVersions": ["v1beta1"],
        "resources": ["clusterqueues"],
    }
    await configure(cluster, hook(reviewer, rule=rule, matchPolicy=policy))
    reviewer.patches["/m"] = [{"op": "replace", "path": "/spec/cohort", "value": "d"}]
    queues = kind(cluster, "clusterqueues", "kueue.x-k8s.io")

    body = {"metadata": {"name": "q"}, "spec": {"cohortName": "c"}}
    stored = await cluster.create(queues, "v1beta2", "", body)

    assert [asked["kind"]["version"] for asked in reviewer.asked] == seen
    assert stored.obj["spec"]["cohortName"] == ("d" if seen else "c")


async def test_updates_and_deletions_show_the_old_object(cluster: Api, reviewer: Reviewer) -> None:
    rule = {"operations": ["UPDATE", "DELETE"]}
    await configure(cluster, hook(reviewer, rule=rule))
    maps = kind(cluster, "configmaps")
    await create(cluster)

    await cluster.patch(maps, "v1", "default", "a", {"data": {"k": "w"}}, "merge")
    await cluster.delete(maps, "default", "a", DeleteOptions())

    update, deletion = reviewer.asked
    assert (update["oldObject"]["data"], update["object"]["data"]) == ({"k": "v"}, {"k": "w"})
    assert (deletion["oldObject"]["data"], deletion["object"]) == ({"k": "w"}, None)


@pytest.mark.parametrize(("effects", "code"), [("None", 0), ("NoneOnDryRun", 0), ("Some", 400)])
async def test_dry_run_reaches_only_webhooks_without_side_effects(
    cluster: Api, reviewer: Reviewer, effects: str, code: int
) -> None:
    await configure(cluster, hook(reviewer, sideEffects=effects))

    if code:
        with pytest.raises(ApiError) as refused:
            await create(cluster, dry_run=True)
        assert refused.value.code == code
    else:
        await create(cluster, dry_run=True)
        assert reviewer.asked[0]["dryRun"] is True


async def test_patch_that_does_not_apply_is_an_internal_error(
    cluster: Api, reviewer: Reviewer
) -> None:
    await configure(cluster, hook(reviewer))
    reviewer.patches["/m"] = [{"op": "remove", "path": "/nowhere"}]

    with pytest.raises(ApiError) as refused:
        await create(cluster)

    assert refused.value.code == 500


async def test_webhooks_are_not_called_for_webhook_configurations(
    cluster: Api, reviewer: Reviewer
) -> None:
    rule = {"apiGroups": ["*"], "resources": ["*"]}
    await configure(cluster, hook(reviewer, rule=rule), name="a")
    await configure(cluster, hook(reviewer, rule=rule), name="b")

    assert reviewer.asked == []


async def test_write_overtaken_during_a_webhook_call_is_retried(
    cluster: Api, reviewer: Reviewer
) -> None:
    await configure(cluster, hook(reviewer, rule={"operations": ["UPDATE"]}))
    reviewer.delay_seconds = 0.05
    maps = kind(cluster, "configmaps")
    await create(cluster)

    patches = ({"data": {key: "1"}} for key in ("a", "b"))
    await asyncio.gather(
        *(cluster.patch(maps, "v1", "default", "a", patch, "merge") for patch in patches)
    )

    assert cluster.get(maps, "default", "a").obj["data"] == {"k": "v", "a": "1", "b": "1"}
    assert len(reviewer.asked) == 3
