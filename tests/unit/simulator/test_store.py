"""What the API does to objects: identity, versions, conflicts, refusals."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from services.simulator.cluster.api import Api, DeleteOptions
from services.simulator.cluster.errors import ApiError
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.stored import Stored
from tests.unit.simulator.builders import api, config_map, job, kind, pipeline_run
from tests.unit.simulator.requests import JOBS, MAPS, RUNS, Which, create, delete, merge, there


async def put(cluster: Api, which: Which, body: Obj) -> Stored:
    found = kind(cluster, which[1], which[0])
    name = body["metadata"]["name"]
    return await cluster.update(found, found.storage_version, "default", name, body)


async def test_new_object_gets_what_the_server_sets() -> None:
    cluster = api()

    stored = await create(cluster, JOBS, {**job(), "status": {"active": 7}})

    metadata = stored.obj["metadata"]
    assert metadata["creationTimestamp"] == "2026-03-04T05:06:07Z"
    assert metadata["generation"] == 1
    assert metadata["resourceVersion"] == str(cluster.store.version)
    assert len(metadata["uid"]) == 36
    assert "status" not in stored.obj


async def test_generated_names_end_in_five_letters_of_the_servers_alphabet() -> None:
    body = config_map()
    body["metadata"] = {"generateName": "a-", "namespace": "default"}

    names = [(await create(api(seed), MAPS, body)).name for seed in (1, 1, 2)]

    assert names[0] == names[1] != names[2], "chance comes from the seed"
    assert names[0].startswith("a-")
    assert len(names[0]) == 7


async def test_generated_name_that_is_taken_is_drawn_again() -> None:
    first, second = api(), api()
    body = {"metadata": {"generateName": "a-", "namespace": "default"}}
    name = (await create(first, MAPS, body)).name
    state = second.rules._random.getstate()
    await create(second, MAPS, config_map(name))
    second.rules._random.setstate(state)

    again = await create(second, MAPS, body)

    assert again.name != name


async def test_only_a_change_of_the_spec_makes_a_new_generation() -> None:
    cluster = api()
    await create(cluster, RUNS, pipeline_run())

    labelled = await merge(cluster, RUNS, "p", {"metadata": {"labels": {"a": "b"}}})
    stated = await merge(cluster, RUNS, "p", {"status": {"x": 1}}, "status")
    changed = await merge(cluster, RUNS, "p", {"spec": {"status": "Cancelled"}})

    generations = [s.obj["metadata"]["generation"] for s in (labelled, stated, changed)]
    assert generations == [1, 1, 2]
    assert labelled.version < stated.version < changed.version


async def test_write_that_changes_nothing_makes_no_version() -> None:
    cluster = api()
    first = await create(cluster, RUNS, pipeline_run())

    again = await merge(cluster, RUNS, "p", {"metadata": {"annotations": {}}})

    assert again.version == first.version == cluster.store.version


async def test_status_and_spec_are_written_separately() -> None:
    cluster = api()
    await create(cluster, RUNS, pipeline_run())

    main = await merge(cluster, RUNS, "p", {"status": {"x": 1}, "spec": {"params": []}})
    status = await merge(cluster, RUNS, "p", {"status": {"x": 2}, "spec": {"q": 1}}, "status")

    assert "status" not in main.obj
    assert main.obj["spec"]["params"] == []
    assert status.obj["status"] == {"x": 2}
    assert "q" not in status.obj["spec"]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    request: Callable[[Api], Any]
    code: int
    reason: str
    message: str


def named(name: str) -> Obj:
    return config_map(name)


def nested(depth: int) -> Obj:
    inner: Obj = {}
    for _ in range(depth):
        inner = {"a": inner}
    return inner


STALE = "the object has been modified; please apply your changes to the latest version"


REFUSALS = {
    "a name that is taken": Refusal(
        request=lambda c: create(c, MAPS, config_map()),
        code=409,
        reason="AlreadyExists",
        message='configmaps "a" already exists',
    ),
    "an object of no namespace that exists": Refusal(
        request=lambda c: create(c, MAPS, {"metadata": {"name": "x"}}, "nowhere"),
        code=404,
        reason="NotFound",
        message='namespaces "nowhere" not found',
    ),
    "a patch of what does not exist": Refusal(
        request=lambda c: merge(c, JOBS, "x", {}),
        code=404,
        reason="NotFound",
        message='jobs.batch "x" not found',
    ),
    "an update from a stale version": Refusal(
        request=lambda c: put(c, MAPS, config_map(resourceVersion="1")),
        code=409,
        reason="Conflict",
        message=f'Operation cannot be fulfilled on configmaps "a": {STALE}',
    ),
    "a patch that names a stale version": Refusal(
        request=lambda c: merge(c, MAPS, "a", {"metadata": {"resourceVersion": "1"}}),
        code=409,
        reason="Conflict",
        message=STALE,
    ),
    "a patch that names another uid": Refusal(
        request=lambda c: merge(c, MAPS, "a", {"metadata": {"uid": "other"}}),
        code=422,
        reason="Invalid",
        message='ConfigMap "a" is invalid: metadata.uid: Invalid value: "other": field is immutable',
    ),
    "an update that names another uid": Refusal(
        request=lambda c: put(c, MAPS, config_map(uid="other")),
        code=409,
        reason="Conflict",
        message="Precondition failed: UID in precondition: other, UID in object meta: ",
    ),
    "a deletion of another life": Refusal(
        request=lambda c: delete(c, MAPS, "a", uid="other"),
        code=409,
        reason="Conflict",
        message="Precondition failed: UID in precondition: other",
    ),
    "an update of a custom resource without a version": Refusal(
        request=lambda c: put(c, RUNS, pipeline_run()),
        code=422,
        reason="Invalid",
        message="metadata.resourceVersion: Invalid value: 0: must be specified for an update",
    ),
    "no name at all": Refusal(
        request=lambda c: create(c, MAPS, {"metadata": {}}),
        code=422,
        reason="Invalid",
        message="metadata.name: Required value: name or generateName is required",
    ),
    "a name in capitals": Refusal(
        request=lambda c: create(c, MAPS, named("Big")),
        code=422,
        reason="Invalid",
        message='metadata.name: Invalid value: "Big": a lowercase RFC 1123 subdomain must consist',
    ),
    "a name of 254 characters": Refusal(
        request=lambda c: create(c, MAPS, named("a" * 254)),
        code=422,
        reason="Invalid",
        message="must be no more than 253 characters",
    ),
    "a label value of 64 characters": Refusal(
        request=lambda c: create(c, MAPS, config_map("b", labels={"a": "x" * 64})),
        code=422,
        reason="Invalid",
        message="metadata.labels: Invalid value:",
    ),
    "a label key with two slashes": Refusal(
        request=lambda c: create(c, MAPS, config_map("b", labels={"a/b/c": "x"})),
        code=422,
        reason="Invalid",
        message='metadata.labels: Invalid value: "a/b/c"',
    ),
    "a label that is a number": Refusal(
        request=lambda c: create(c, MAPS, config_map("b", labels={"a": 1})),
        code=400,
        reason="BadRequest",
        message="metadata.labels",
    ),
    "annotations beyond 256 KiB": Refusal(
        request=lambda c: create(c, MAPS, config_map("b", annotations={"a": "x" * 262_144})),
        code=422,
        reason="Invalid",
        message="metadata.annotations: Too long: may not be more than 262144 bytes",
    ),
    "an object beyond 1.5 MiB": Refusal(
        request=lambda c: create(c, MAPS, {**config_map("b"), "data": {"k": "x" * 1_600_000}}),
        code=500,
        reason="",
        message="etcdserver: request is too large",
    ),
    "an object of another kind": Refusal(
        request=lambda c: create(c, MAPS, {**config_map("b"), "kind": "Secret"}),
        code=400,
        reason="BadRequest",
        message="does not match the expected API version (v1, ConfigMap)",
    ),
    "an object of another namespace": Refusal(
        request=lambda c: create(c, MAPS, config_map("b", namespace="kube-system")),
        code=400,
        reason="BadRequest",
        message="the namespace of the provided object does not match",
    ),
    "a version on a new object": Refusal(
        request=lambda c: create(c, MAPS, config_map("b", resourceVersion="5")),
        code=400,
        reason="BadRequest",
        message="resourceVersion should not be set on objects to be created",
    ),
    "an owner that is no object": Refusal(
        request=lambda c: create(c, MAPS, config_map("b", ownerReferences=["x"])),
        code=400,
        reason="BadRequest",
        message="an owner reference must be an object",
    ),
    "a job whose parallelism is a word": Refusal(
        request=lambda c: create(c, JOBS, job("b", parallelism="two")),
        code=400,
        reason="BadRequest",
        message="cannot unmarshal str into field spec.parallelism of type int",
    ),
    "an object nested too deep to be written": Refusal(
        request=lambda c: create(c, MAPS, {**config_map("b"), "data": nested(2000)}),
        code=400,
        reason="BadRequest",
        message="the object cannot be encoded",
    ),
    "another pod template of a running job": Refusal(
        request=lambda c: merge(c, JOBS, "j", {"spec": {"template": {"spec": {"x": 1}}}}),
        code=422,
        reason="Invalid",
        message='Job.batch "j" is invalid: spec.template: Invalid value: field is immutable',
    ),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS.keys())
async def test_invalid_request_is_refused(case: Refusal) -> None:
    cluster = api()
    await create(cluster, MAPS, config_map())
    await create(cluster, JOBS, job())
    await create(cluster, RUNS, pipeline_run())
    version = cluster.store.version

    with pytest.raises(ApiError) as refused:
        await case.request(cluster)

    assert (refused.value.code, refused.value.reason) == (case.code, case.reason)
    assert case.message in refused.value.message
    assert refused.value.status()["code"] == case.code
    assert cluster.store.version == version, "what is refused leaves no trace"


async def test_suspended_job_that_has_not_started_may_get_other_nodes() -> None:
    cluster = api()
    await create(cluster, JOBS, job(suspend=True))

    patch = {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}, "suspend": False}}
    stored = await merge(cluster, JOBS, "j", patch)

    assert stored.obj["spec"]["template"]["spec"]["nodeSelector"] == {"a": "b"}


async def test_dry_run_returns_the_result_and_stores_nothing() -> None:
    cluster = api()
    maps = kind(cluster, "configmaps")

    would = await cluster.create(maps, "v1", "default", config_map(), dry_run=True)

    assert would.obj["metadata"]["uid"]
    assert not there(cluster, MAPS, "a")


async def test_both_versions_of_a_queue_are_one_object() -> None:
    cluster = api()
    queues = kind(cluster, "clusterqueues", "kueue.x-k8s.io")
    body = {"metadata": {"name": "q"}, "spec": {"cohort": "c", "queueingStrategy": "StrictFIFO"}}

    stored = await cluster.create(queues, "v1beta1", "", body)

    assert stored.copy("v1beta2")["spec"] == {"cohortName": "c", "queueingStrategy": "StrictFIFO"}
    assert stored.copy("v1beta1")["spec"] == body["spec"]
    assert stored.copy("v1beta1")["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    patched = await cluster.patch(queues, "v1beta1", "", "q", {"spec": {"cohort": "d"}}, "merge")
    assert patched.copy("v1beta2")["spec"]["cohortName"] == "d"


DEFINITION = {
    "metadata": {"name": "wells.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"kind": "Well", "plural": "wells", "shortNames": ["we"]},
        "scope": "Namespaced",
        "versions": [
            {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}}
        ],
    },
}


async def test_definition_makes_its_kind_served_until_it_is_deleted() -> None:
    cluster = api()
    crds = ("apiextensions.k8s.io", "customresourcedefinitions")

    defined = await cluster.create(kind(cluster, crds[1], crds[0]), "v1", "", DEFINITION)
    await create(cluster, ("example.com", "wells"), {"metadata": {"name": "w"}})
    wells = kind(cluster, "wells", "example.com")
    await cluster.delete(kind(cluster, crds[1], crds[0]), "", defined.name, DeleteOptions())

    assert defined.obj["status"]["conditions"][1]["type"] == "Established"
    assert wells.has_status
    assert cluster.kinds.find("example.com", "v1", "wells") is None
    assert cluster.store.count(wells) == 0
