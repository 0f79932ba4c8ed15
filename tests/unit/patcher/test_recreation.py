"""A run that cannot be suspended is ended and recreated once, also after a crash in between."""

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from typing_extensions import override

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.events import EventRecorder
from services.patcher.cluster.pacing import WriteLoad
from services.patcher.cluster.writer import Writer
from services.patcher.jobs.recreation import NAMES_MAX, Recreation, end_patch
from services.patcher.jobs.waiting_copy import NAME_MAX, copy_of
from services.simulator.behaviour.tekton.admission import TektonAdmission
from services.simulator.cluster.api import Api
from services.simulator.local import LocalKube
from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Object
from shared.integrations import PIPELINE_RUN
from shared.kube.port import NotFoundError, Patch, RefusedError, UnavailableError
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer

R = names.REQUESTS_PREFIX
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SUCCEEDED = {"type": "Succeeded", "status": "True", "reason": "Succeeded"}


class FaultyKube(LocalKube):
    """A cluster that does not answer when it is told not to."""

    silent_for: str = ""
    refuses: str = ""
    """A label that an admission policy refuses in what is waiting."""

    @override
    async def create(self, kind: kinds.Kind, obj: Object) -> Object:
        if self.refuses in (obj["metadata"].get("labels") or {}) and "status" in obj["spec"]:
            raise RefusedError("denied by a policy", status=400, reason="BadRequest")
        return await super().create(kind, obj)

    @override
    async def patch(self, kind: kinds.Kind, *args: Any, **more: Any) -> Object:
        if self.silent_for == "patch":
            raise UnavailableError("cluster: 503", status=503, reason="ServiceUnavailable")
        return await super().patch(kind, *args, **more)


class Setup:
    def __init__(self) -> None:
        api = Api(now=lambda: NOON, random=Random(1))
        api.admission.plugins.append(TektonAdmission())
        self.kube = FaultyKube(api)
        cache = ObjectCache(bus=MemoryBus(MemoryServer(), instance="test"), cluster="hub")
        writer = Writer(kube=self.kube, cache=cache, load=WriteLoad())
        events = EventRecorder(kube=self.kube, now=lambda: NOON, per_second=1)
        self.recreation = Recreation(writer=writer, events=events)

    async def run(self, **metadata: Any) -> Object:
        """A PipelineRun that has started."""
        steps = [{"name": "s", "image": "i"}]
        created = await self.kube.create(
            kinds.PIPELINE_RUN,
            {
                "apiVersion": "tekton.dev/v1",
                "kind": "PipelineRun",
                "metadata": {"name": "build", "namespace": "default", **metadata},
                "spec": {
                    "params": [{"name": "a", "value": "b"}],
                    "pipelineSpec": {"tasks": [{"name": "t", "taskSpec": {"steps": steps}}]},
                },
            },
        )
        return await self.status(created, {"startTime": "2026-01-01T12:00:00Z"})

    async def status(self, run: Object, status: Object) -> Object:
        name = run["metadata"]["name"]
        patch: Patch = {"status": status}
        return await self.kube.patch(
            kinds.PIPELINE_RUN, "default", name, patch, subresource="status"
        )

    async def end(
        self, run: Object, *, recreate: bool = True, cancel: bool = False
    ) -> Object | None:
        return await self.recreation.end(
            run, PIPELINE_RUN, reason="preempted", recreate=recreate, cancel=cancel
        )

    async def runs(self) -> dict[str, Object]:
        found = (await self.kube.list(kinds.PIPELINE_RUN)).items
        return {run["metadata"]["name"]: run for run in found}

    async def copies(self) -> list[Object]:
        return [run for name, run in (await self.runs()).items() if name != "build"]


@pytest.fixture
def setup() -> Setup:
    return Setup()


async def test_run_is_ended_and_its_copy_waits(setup: Setup) -> None:
    run = await setup.run(labels={"team": "x"}, annotations={"note": "y"})

    after = await setup.end(run)

    [copy] = await setup.copies()
    assert after is not None
    assert after["spec"]["status"] == "CancelledRunFinally"
    assert after["metadata"]["annotations"][names.RECREATED_AS] == copy["metadata"]["name"]
    assert copy["spec"]["status"] == "PipelineRunPending"
    assert copy["spec"]["params"] == run["spec"]["params"]
    assert copy["metadata"]["labels"] == {"team": "x"}
    assert copy["metadata"]["annotations"]["note"] == "y"
    assert copy["metadata"]["annotations"][names.USER_PENDING] == "false"


async def test_crash_between_the_two_writes_leaves_one_copy(
    setup: Setup,
) -> None:
    run = await setup.run()
    setup.kube.silent_for = "patch"
    with pytest.raises(UnavailableError):
        await setup.end(run)
    setup.kube.silent_for = ""

    await setup.end(run)
    await setup.end(run)

    assert len(await setup.copies()) == 1
    assert (await setup.runs())["build"]["spec"]["status"] == "CancelledRunFinally"


async def test_run_that_succeeded_meanwhile_is_not_recreated(setup: Setup) -> None:
    seen = await setup.run()
    ended = {"conditions": [SUCCEEDED], "completionTime": "2026-01-01T12:01:00Z"}
    await setup.status(seen, ended)

    assert await setup.end(seen) is None
    assert await setup.copies() == []


async def test_run_deleted_meanwhile_has_no_copy(setup: Setup) -> None:
    seen = await setup.run()
    await setup.kube.delete(kinds.PIPELINE_RUN, "default", "build")

    assert await setup.end(seen) is None
    assert await setup.copies() == []


async def test_copy_started_by_a_user_is_not_deleted(setup: Setup) -> None:
    seen = await setup.run()
    setup.kube.silent_for = "patch"
    with pytest.raises(UnavailableError):
        await setup.end(seen)
    setup.kube.silent_for = ""
    [copy] = await setup.copies()
    name = copy["metadata"]["name"]
    release: Patch = [{"op": "remove", "path": "/spec/status"}]
    await setup.kube.patch(kinds.PIPELINE_RUN, "default", name, release)
    await setup.kube.delete(kinds.PIPELINE_RUN, "default", "build")

    assert await setup.end(seen) is None
    assert [one["metadata"]["name"] for one in await setup.copies()] == [name]


async def take_names(setup: Setup, run: Object, count: int) -> None:
    for attempt in range(count):
        taken = copy_of(run, PIPELINE_RUN, attempt=attempt)
        taken["metadata"]["annotations"] = {}
        await setup.kube.create(kinds.PIPELINE_RUN, taken)


@pytest.mark.parametrize("taken", [1, NAMES_MAX - 1])
async def test_copy_of_a_run_whose_name_is_taken_gets_another(setup: Setup, taken: int) -> None:
    run = await setup.run()
    await take_names(setup, run, taken)
    for _ in range(2):
        after = await setup.end(run)
    assert len(await setup.copies()) == taken + 1
    assert after is not None
    assert after["spec"]["status"] == "CancelledRunFinally"


async def test_run_runs_on_if_every_name_is_taken(setup: Setup) -> None:
    run = await setup.run()
    await take_names(setup, run, NAMES_MAX)
    with pytest.raises(RefusedError, match="is no copy of this one"):
        await setup.end(run)
    assert "status" not in (await setup.runs())["build"]["spec"]


async def test_run_without_admission_is_cancelled_though_its_copy_is_refused(setup: Setup) -> None:
    run = await setup.run()
    await take_names(setup, run, NAMES_MAX)
    after = await setup.end(run, cancel=True)
    assert after is not None
    assert after["spec"]["status"] == "Cancelled"


async def test_copy_is_bare_where_what_its_tenant_wrote_is_refused(setup: Setup) -> None:
    setup.kube.refuses = "team"
    labels = {"team": "x", names.QUEUE: "q", names.PRIORITY_CLASS_LABEL: "low"}
    run = await setup.run(labels=labels, annotations={"note": "y", f"{R}cpu": "2"})
    assert await setup.end(run) is not None
    [copy] = await setup.copies()
    assert copy["metadata"]["labels"] == {names.QUEUE: "q", names.PRIORITY_CLASS_LABEL: "low"}
    assert copy["metadata"]["annotations"][f"{R}cpu"] == "2"
    assert "note" not in copy["metadata"]["annotations"]


async def test_run_is_only_ended_without_a_copy(setup: Setup) -> None:
    run = await setup.run()

    after = await setup.end(run, recreate=False)

    assert after is not None
    assert after["spec"]["status"] == "CancelledRunFinally"
    assert await setup.copies() == []


async def test_gone_run_is_no_error(setup: Setup) -> None:
    run = await setup.run()
    await setup.kube.delete(kinds.PIPELINE_RUN, "default", "build")

    assert await setup.end(run, recreate=False) is None
    with pytest.raises(NotFoundError):
        await setup.kube.get(kinds.PIPELINE_RUN, "default", "build")


def a_run(**metadata: Any) -> Object:
    return {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": {"name": "build", "namespace": "default", "uid": "u-1", **metadata},
        "spec": {"pipelineRef": {"name": "p"}, "managedBy": "kueue.x-k8s.io/multikueue"},
        "status": {"startTime": "2026-01-01T12:00:00Z"},
    }


NOT_KEPT = (
    "sluicegate.dev/traceparent",
    "sluicegate.dev/recreated-as",
    "chains.tekton.dev/signed",
    "results.tekton.dev/record",
    "pipeline.tekton.dev/affinity-assistant",
    "kubectl.kubernetes.io/last-applied-configuration",
)
KEPT = {
    names.COSCHEDULE: "pipelineruns",
    f"{R}aws-ip": "1",
    "pipelinesascode.tekton.dev/repository": "x",
}


@pytest.mark.parametrize("key", [*KEPT, *NOT_KEPT])
def test_copy_keeps_the_users_annotations_only(key: str) -> None:
    copy = copy_of(a_run(annotations={key: KEPT.get(key, "x")}), PIPELINE_RUN)

    assert (key in copy["metadata"]["annotations"]) is (key in KEPT)


def admitted_with(**requests: str) -> Object:
    container = {"resources": {"requests": {"tekton.dev/pipelineruns": "1", **requests}}}
    return {"spec": {"podSets": [{"template": {"spec": {"containers": [container]}}}]}}


APPLIED = '{"cpu":["2","5"]}'
ASKED: dict[str, tuple[Object, Object | None, Object]] = {
    "as it was admitted": ({f"{R}cpu": "5"}, admitted_with(cpu="5"), {f"{R}cpu": "5"}),
    "less than it was admitted with": ({f"{R}cpu": "1"}, admitted_with(cpu="5"), {f"{R}cpu": "5"}),
    "less than nothing": ({f"{R}cpu": "-5"}, admitted_with(cpu="5"), {f"{R}cpu": "5"}),
    "more than fits": ({f"{R}cpu": "9" * 30}, admitted_with(cpu="5"), {f"{R}cpu": "5"}),
    "nothing any more": ({}, admitted_with(cpu="5"), {f"{R}cpu": "5"}),
    "something else": ({f"{R}gpu": "1"}, admitted_with(), {}),
    "no resource": ({R: "1"}, admitted_with(), {}),
    "what is valid, without a Workload": ({f"{R}cpu": "5", f"{R}b": "-1"}, None, {f"{R}cpu": "5"}),
    "what rules had added": (
        {f"{R}cpu": "5", names.REQUESTS_APPLIED: APPLIED},
        admitted_with(cpu="5"),
        {f"{R}cpu": "5", names.REQUESTS_APPLIED: APPLIED},
    ),
    "what rules had added, then less": (
        {f"{R}cpu": "0", names.REQUESTS_APPLIED: APPLIED},
        admitted_with(cpu="5"),
        {f"{R}cpu": "5", names.REQUESTS_APPLIED: APPLIED},
    ),
    "a record that does not fit": (
        {f"{R}cpu": "5", names.REQUESTS_APPLIED: '{"cpu":["-9","5"]}'},
        admitted_with(cpu="5"),
        {f"{R}cpu": "5"},
    ),
    "a record of another form": (
        {f"{R}cpu": "5", names.REQUESTS_APPLIED: '[{"cpu":1}]'},
        admitted_with(cpu="5"),
        {f"{R}cpu": "5"},
    ),
    "no mode of coscheduling": ({names.COSCHEDULE: "x"}, admitted_with(), {}),
}


@pytest.mark.parametrize(("written", "workload", "kept"), ASKED.values(), ids=ASKED.keys())
def test_copy_asks_for_what_the_run_was_admitted_with(
    written: Object, workload: Object | None, kept: Object
) -> None:
    """Whatever its tenant writes while it runs: `written` is what it says in the end."""
    made = copy_of(a_run(annotations=written), PIPELINE_RUN, workload)["metadata"]["annotations"]
    asks = (R, names.REQUESTS_APPLIED, names.COSCHEDULE)
    assert {key: value for key, value in made.items() if key.startswith(asks)} == kept


def test_copy_keeps_owners_and_spec() -> None:
    owners = [{"kind": "Release", "name": "r", "uid": "u"}]
    copy = copy_of(a_run(ownerReferences=owners), PIPELINE_RUN)

    assert copy["metadata"]["ownerReferences"] == owners
    assert copy["spec"]["managedBy"] == "kueue.x-k8s.io/multikueue"
    assert "status" not in copy
    assert "uid" not in copy["metadata"]


@pytest.mark.parametrize("name", ["build", "b" * 253, "x" * 50 + "." + "y" * 40])
def test_names_of_copies_fit_a_label_and_differ(name: str) -> None:
    first = copy_of(a_run(name=name), PIPELINE_RUN)
    second = copy_of({**first, "metadata": {**first["metadata"], "uid": "u-2"}}, PIPELINE_RUN)

    made = [copy["metadata"]["name"] for copy in (first, second)]
    assert all(len(one) <= NAME_MAX for one in made)
    assert made[0] != made[1]
    assert second["metadata"]["annotations"][names.RECREATED_FIRST] == name
    assert second["metadata"]["annotations"][names.RECREATIONS] == "2"


@pytest.mark.parametrize("note", ["x", "-1", "1" * 100, "²"])
def test_invalid_recreation_count_starts_again(note: str) -> None:
    copy = copy_of(a_run(annotations={names.RECREATIONS: note}), PIPELINE_RUN)

    assert copy["metadata"]["annotations"][names.RECREATIONS] == "1"


def test_ended_run_gets_no_end_patch() -> None:
    ended = a_run()
    ended["status"]["conditions"] = [SUCCEEDED]

    assert end_patch(ended, PIPELINE_RUN, "copy") is None


@pytest.mark.parametrize("asked", [None, "CancelledRunFinally", "StoppedRunFinally"])
def test_run_without_admission_is_cancelled_at_once_without_its_finally_tasks(
    asked: str | None,
) -> None:
    run = a_run()
    if asked is not None:
        run["spec"]["status"] = asked

    patch = end_patch(run, PIPELINE_RUN, cancel=True)
    assert patch is not None
    assert {"op": "add", "path": "/spec/status", "value": "Cancelled"} in patch
