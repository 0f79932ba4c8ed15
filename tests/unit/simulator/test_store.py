"""What the API does to objects: identity, versions, conflicts, deletion, the past."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from services.simulator.cluster.api import Api, DeleteOptions
from services.simulator.cluster.errors import ApiError
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.listing import Lists
from services.simulator.cluster.storage.stored import Stored
from services.simulator.cluster.storage.watching import Watch
from tests.unit.simulator.builders import api, config_map, job, kind, pipeline_run

JOBS, RUNS, MAPS = ("batch", "jobs"), ("tekton.dev", "pipelineruns"), ("", "configmaps")
Which = tuple[str, str]


async def create(cluster: Api, which: Which, body: Obj, namespace: str = "default") -> Stored:
    found = kind(cluster, which[1], which[0])
    return await cluster.create(found, found.storage_version, namespace, body)


async def merge(cluster: Api, which: Which, name: str, patch: Any, subresource: str = "") -> Stored:
    found = kind(cluster, which[1], which[0])
    return await cluster.patch(
        found, found.storage_version, "default", name, patch, "merge", subresource=subresource
    )


async def put(cluster: Api, which: Which, body: Obj) -> Stored:
    found = kind(cluster, which[1], which[0])
    name = body["metadata"]["name"]
    return await cluster.update(found, found.storage_version, "default", name, body)


async def delete(cluster: Api, which: Which, name: str, **options: Any) -> bool:
    found = kind(cluster, which[1], which[0])
    _, gone = await cluster.delete(found, "default", name, DeleteOptions(**options))
    return gone


def there(cluster: Api, which: Which, name: str) -> bool:
    return cluster.store.get(kind(cluster, which[1], which[0]), "default", name) is not None


# --- identity and versions ---------------------------------------------------------------------


async def test_a_new_object_gets_what_the_server_sets() -> None:
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


async def test_a_generated_name_that_is_taken_is_drawn_again() -> None:
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


async def test_a_write_that_changes_nothing_makes_no_version() -> None:
    cluster = api()
    first = await create(cluster, RUNS, pipeline_run())

    again = await merge(cluster, RUNS, "p", {"metadata": {"annotations": {}}})

    assert again.version == first.version == cluster.store.version


async def test_status_and_the_rest_are_written_apart() -> None:
    cluster = api()
    await create(cluster, RUNS, pipeline_run())

    main = await merge(cluster, RUNS, "p", {"status": {"x": 1}, "spec": {"params": []}})
    status = await merge(cluster, RUNS, "p", {"status": {"x": 2}, "spec": {"q": 1}}, "status")

    assert "status" not in main.obj
    assert main.obj["spec"]["params"] == []
    assert status.obj["status"] == {"x": 2}
    assert "q" not in status.obj["spec"]


# --- refusals ----------------------------------------------------------------------------------


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
async def test_refused(case: Refusal) -> None:
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


async def test_a_suspended_job_that_has_not_started_may_get_other_nodes() -> None:
    cluster = api()
    await create(cluster, JOBS, job(suspend=True))

    patch = {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}, "suspend": False}}
    stored = await merge(cluster, JOBS, "j", patch)

    assert stored.obj["spec"]["template"]["spec"]["nodeSelector"] == {"a": "b"}


async def test_dry_run_says_what_would_be_and_keeps_nothing() -> None:
    cluster = api()
    maps = kind(cluster, "configmaps")

    would = await cluster.create(maps, "v1", "default", config_map(), dry_run=True)

    assert would.obj["metadata"]["uid"]
    assert not there(cluster, MAPS, "a")


# --- deletion ----------------------------------------------------------------------------------


async def test_finalizers_hold_an_object_until_the_last_is_gone() -> None:
    cluster = api()
    await create(cluster, MAPS, config_map(finalizers=["a.example/x", "a.example/y"]))

    assert not await delete(cluster, MAPS, "a")
    held = await merge(cluster, MAPS, "a", {"metadata": {"finalizers": ["a.example/y"]}})
    assert held.obj["metadata"]["deletionTimestamp"]
    await merge(cluster, MAPS, "a", {"metadata": {"finalizers": None}})

    assert not there(cluster, MAPS, "a")


async def test_an_object_that_is_being_deleted_takes_no_new_finalizer() -> None:
    cluster = api()
    await create(cluster, MAPS, config_map(finalizers=["a.example/x"]))
    await delete(cluster, MAPS, "a")

    patch = {"metadata": {"finalizers": ["a.example/x", "a.example/z"]}}
    with pytest.raises(ApiError, match="no new finalizers can be added") as refused:
        await merge(cluster, MAPS, "a", patch)

    assert refused.value.code == 422


async def test_a_namespace_that_is_being_deleted_takes_nothing_new() -> None:
    cluster = api()
    spaces = kind(cluster, "namespaces")
    await cluster.create(spaces, "v1", "", {"metadata": {"name": "team"}})
    await cluster.delete(spaces, "", "team", DeleteOptions())

    with pytest.raises(ApiError, match="because it is being terminated") as refused:
        await create(cluster, MAPS, {"metadata": {"name": "a"}}, "team")

    assert (refused.value.code, refused.value.reason) == (403, "Forbidden")
    assert refused.value.status()["details"]["causes"][0]["reason"] == "NamespaceTerminating"


def owned(name: str, *owners: Stored, block: bool = False) -> Obj:
    references = [
        {
            "apiVersion": owner.obj["apiVersion"],
            "kind": owner.obj["kind"],
            "name": owner.name,
            "uid": owner.uid,
            "blockOwnerDeletion": block,
        }
        for owner in owners
    ]
    return config_map(name, ownerReferences=references)


async def test_what_is_owned_goes_with_its_last_owner() -> None:
    cluster = api()
    first = await create(cluster, MAPS, config_map("first"))
    second = await create(cluster, MAPS, config_map("second"))
    await create(cluster, MAPS, owned("child", first, second))
    grandchild = owned("grandchild", cluster.get(kind(cluster, "configmaps"), "default", "child"))
    await create(cluster, MAPS, grandchild)

    await delete(cluster, MAPS, "first")
    child = cluster.get(kind(cluster, "configmaps"), "default", "child")
    assert [owner["name"] for owner in child.obj["metadata"]["ownerReferences"]] == ["second"]
    await delete(cluster, MAPS, "second")

    assert not there(cluster, MAPS, "child")
    assert not there(cluster, MAPS, "grandchild")


async def test_what_is_created_for_a_dead_owner_goes_at_once() -> None:
    cluster = api()
    owner = await create(cluster, MAPS, config_map("owner"))
    await delete(cluster, MAPS, "owner")

    await create(cluster, MAPS, owned("child", owner))

    assert not there(cluster, MAPS, "child")


async def test_orphans_stay_and_forget_their_owner() -> None:
    cluster = api()
    owner = await create(cluster, MAPS, config_map("owner"))
    await create(cluster, MAPS, owned("child", owner))

    await delete(cluster, MAPS, "owner", propagation="Orphan")

    assert not there(cluster, MAPS, "owner")
    child = cluster.get(kind(cluster, "configmaps"), "default", "child")
    assert "ownerReferences" not in child.obj["metadata"]


async def test_foreground_deletion_waits_for_what_blocks_it() -> None:
    cluster = api()
    owner = await create(cluster, MAPS, config_map("owner"))
    body = owned("child", owner, block=True)
    body["metadata"]["finalizers"] = ["a.example/x"]
    await create(cluster, MAPS, body)

    assert not await delete(cluster, MAPS, "owner", propagation="Foreground")
    assert there(cluster, MAPS, "owner")
    await merge(cluster, MAPS, "child", {"metadata": {"finalizers": None}})

    assert not there(cluster, MAPS, "child")
    assert not there(cluster, MAPS, "owner")


async def test_foreground_deletion_goes_all_the_way_down() -> None:
    cluster = api()
    owner = await create(cluster, MAPS, config_map("owner"))
    child = await create(cluster, MAPS, owned("child", owner, block=True))
    body = owned("grandchild", child, block=True)
    body["metadata"]["finalizers"] = ["a.example/x"]
    await create(cluster, MAPS, body)

    assert not await delete(cluster, MAPS, "owner", propagation="Foreground")
    assert there(cluster, MAPS, "child")
    assert there(cluster, MAPS, "owner")
    await merge(cluster, MAPS, "grandchild", {"metadata": {"finalizers": None}})

    assert not there(cluster, MAPS, "child")
    assert not there(cluster, MAPS, "owner")


# --- the past ----------------------------------------------------------------------------------


def watch(cluster: Api, since: int, labels: dict[str, str] | None = None) -> Watch:
    wanted = labels

    def selects(obj: Obj) -> bool:
        return bool(obj["metadata"].get("labels") == wanted)

    return Watch(
        cluster.store,
        kind(cluster, "configmaps"),
        since=since,
        selector=None if labels is None else selects,
    )


def said(events: Watch) -> list[tuple[str, str]]:
    return [(type_, event.stored.name) for type_, event in events.drain()]


async def test_a_watch_tells_what_came_after_its_version() -> None:
    cluster = api()
    stored = await create(cluster, MAPS, config_map("before"))
    await create(cluster, MAPS, config_map("a"))
    events = watch(cluster, stored.version)
    await merge(cluster, MAPS, "a", {"data": {"k": "w"}})
    await delete(cluster, MAPS, "a")

    assert said(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert said(events) == []


async def test_an_object_enters_and_leaves_a_selection() -> None:
    cluster = api()
    await create(cluster, MAPS, config_map("a"))
    events = watch(cluster, cluster.store.version, {"in": "yes"})
    for labels in ({"in": "yes"}, {"in": "no"}, {"in": "yes"}):
        await merge(cluster, MAPS, "a", {"metadata": {"labels": labels}})
    await delete(cluster, MAPS, "a")

    seen = events.drain()
    assert [type_ for type_, _ in seen] == ["ADDED", "DELETED", "ADDED", "DELETED"]
    shown = [event.stored.obj["metadata"]["labels"]["in"] for _, event in seen]
    assert shown == ["yes"] * 4, "what leaves is shown as it was when it last matched"
    versions = [int(event.stored.obj["metadata"]["resourceVersion"]) for _, event in seen]
    assert versions == sorted(set(versions))


async def test_a_version_that_is_forgotten_cannot_be_watched_from() -> None:
    cluster = api(history_max=3)
    first = await create(cluster, MAPS, config_map("a0"))
    for number in range(1, 4):
        await create(cluster, MAPS, config_map(f"a{number}"))
    assert len(said(watch(cluster, first.version))) == 3
    await create(cluster, MAPS, config_map("a4"))

    with pytest.raises(ApiError, match="too old resource version") as refused:
        watch(cluster, first.version)

    assert (refused.value.code, refused.value.reason) == (410, "Expired")


async def test_compaction_and_the_future_cannot_be_watched_from() -> None:
    cluster = api()
    stored = await create(cluster, MAPS, config_map("a"))
    await create(cluster, MAPS, config_map("b"))
    cluster.store.forget_events()

    for version in (stored.version, cluster.store.version + 1):
        with pytest.raises(ApiError) as refused:
            watch(cluster, version)
        assert refused.value.code == 410
    assert said(watch(cluster, cluster.store.version)) == []


async def test_everybody_hears_of_changes_in_the_same_order() -> None:
    cluster = api()
    first, second = watch(cluster, 5), watch(cluster, 5)
    owner = await create(cluster, MAPS, config_map("owner"))
    await create(cluster, MAPS, owned("child", owner))
    await delete(cluster, MAPS, "owner")

    heard = [event.version for _, event in first.drain()]
    assert heard == sorted(heard)
    assert heard == [event.version for _, event in second.drain()]


async def test_a_watcher_that_is_too_slow_loses_its_watch_and_nothing_before() -> None:
    cluster = api()
    maps = kind(cluster, "configmaps")
    events = Watch(cluster.store, maps, since=cluster.store.version, buffer_max=2)
    rung: list[bool] = []
    events.on_ready = lambda: rung.append(events.overflowed)
    for number in range(4):
        await create(cluster, MAPS, config_map(f"a{number}"))

    assert rung == [False, False, True], "it is told of the end, and then of nothing"
    assert said(events) == [("ADDED", "a0"), ("ADDED", "a1")]


async def test_pages_show_one_moment() -> None:
    cluster = api()
    for number in range(5):
        await create(cluster, MAPS, config_map(f"a{number}"))
    lists, maps = Lists(cluster.store), kind(cluster, "configmaps")

    first = lists.page(maps, None, None, limit=2)
    await delete(cluster, MAPS, "a3")
    await create(cluster, MAPS, config_map("a9"))
    second = lists.page(maps, None, None, limit=2, token=first.next_token)
    third = lists.page(maps, None, None, limit=2, token=second.next_token)

    names = [stored.name for page in (first, second, third) for stored in page.items]
    assert names == ["a0", "a1", "a2", "a3", "a4"]
    assert first.version == second.version == third.version
    assert (first.remaining, third.next_token) == (3, "")


@pytest.mark.parametrize(("token", "code"), [("garbage", 400), ("eyJsaXN0Ijo5OX0=", 410)])
def test_a_token_that_leads_nowhere_is_refused(token: str, code: int) -> None:
    cluster = api()

    with pytest.raises(ApiError) as refused:
        Lists(cluster.store).page(kind(cluster, "configmaps"), None, None, token=token)

    assert refused.value.code == code


# --- versions and definitions of kinds ---------------------------------------------------------


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


async def test_a_definition_makes_its_kind_served_until_it_is_deleted() -> None:
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
