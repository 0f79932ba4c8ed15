"""What a tenant writes into TaskRuns and PipelineRuns to have more machines than its runs have quota for."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import QUEUE
from shared.contracts.simulation import DURATION
from tests.attacks.field import TENANT, Act, Field
from tests.attacks.ground import BreachError
from tests.conformance.seeds.stage import pool
from tests.simulation.machines.machine_park import Park, dynamic
from tests.simulation.machines.test_machine_slots import build

PLATFORM: Final = "linux/arm64"
RESOURCE: Final = "linux-arm64"
RUNS: Final = 4
"""Of the tenant. There is quota for the machine of one."""

DIRECT_MAX: Final = 1
"""Hosts that a namespace may have beyond the quota of runs."""

LOOKS: Final = 12
FAILED_HOSTS: Final = "build.appstudio.redhat.com/failed-hosts"

Trick = Callable[[Field, list[Object]], Awaitable[None]]
"""What the tenant does once a minute, to its runs."""


def _with_machines(trick: Trick, **settings: Any) -> Act:
    """Have some runs wait for one machine, and try to get more."""
    direct = 0 if settings else DIRECT_MAX
    settings = settings or {"direct_task_runs_max": DIRECT_MAX}

    async def act(field: Field) -> None:
        park = Park(field.stage.system, **settings)
        await park.open({"dynamic-platforms": PLATFORM, **dynamic(PLATFORM, 9)})
        slots = {"tekton.dev/pipelineruns": RUNS, RESOURCE: 1}
        await field.stage.create(*pool("builds", slots, namespaces=(TENANT,)))
        field.slots += RUNS
        runs = []
        for number in range(RUNS):
            run = build(f"build-{number}", seconds=7200)
            run["metadata"]["labels"] = {QUEUE: "builds"}
            runs.append(await field.create(run))
            await field.stage.settle(2)
        await field.stage.until_admitted(runs[0])
        for _ in range(RUNS):
            await trick(field, runs)
            for _ in range(LOOKS):
                await field.stage.settle(5)
                alive = len(park.alive())
                if alive > 1 + direct:
                    raise BreachError(f"{alive} machines with quota for 1, and {direct} beside it")

    return act


async def _admitted(field: Field, runs: list[Object]) -> list[Object]:
    found = [await field.stage.fresh(run) for run in runs if await field.stage.is_admitted(run)]
    return [one for one in found if one is not None]


async def _own(field: Field, run: Object) -> list[Object]:
    """The TaskRuns of a run."""
    name = run["metadata"]["name"]
    return [
        one
        for one in await field.all(kinds.TASK_RUN)
        if one["metadata"]["name"].startswith(f"{name}-")
    ]


def _by_hand(run: Object, name: str, *, seconds: int, **metadata: Any) -> Object:
    """A TaskRun that nobody but its tenant made, and that names the run as its controller."""
    owner = {
        "apiVersion": run["apiVersion"], "kind": run["kind"], "controller": True,
        "name": run["metadata"]["name"], "uid": run["metadata"]["uid"],
    }  # fmt: skip
    return {
        "apiVersion": kinds.TASK_RUN.api_version,
        "kind": kinds.TASK_RUN.kind,
        "metadata": {
            "name": name, "namespace": TENANT, "ownerReferences": [owner],
            "annotations": {DURATION: f"{seconds}s"}, **metadata,
        },
        "spec": {
            "params": [{"name": "PLATFORM", "value": PLATFORM}],
            "taskSpec": {"steps": [{"name": "work", "image": "builder"}]},
        },
    }  # fmt: skip


async def _names_its_run(field: Field, runs: list[Object]) -> None:
    for run in await _admitted(field, runs):
        for number in range(2):
            name = f"hand-{number}-{len(await field.all(kinds.TASK_RUN))}"
            await field.create(_by_hand(run, name, seconds=3600))


async def _looks_like_its_own(field: Field, runs: list[Object]) -> None:
    for run in await _admitted(field, runs):
        for own in await _own(field, run):
            labels = own["metadata"].get("labels") or {}
            name = f"hand-{len(await field.all(kinds.TASK_RUN))}"
            await field.create(_by_hand(run, name, seconds=3600, labels=labels))


async def _ends_soon(field: Field, runs: list[Object]) -> None:
    for run in await _admitted(field, runs):
        name = f"hand-{len(await field.all(kinds.TASK_RUN))}"
        await field.create(_by_hand(run, name, seconds=5))


async def _makes_anew(field: Field, runs: list[Object]) -> None:
    for run in await _admitted(field, runs):
        for own in await _own(field, run):
            await field.delete(own)


async def _replaces(field: Field, runs: list[Object]) -> None:
    for run in await _admitted(field, runs):
        for own in await _own(field, run):
            await field.patch(own, {"metadata": {"finalizers": None}})
            await field.delete(own)
            await field.create(_by_hand(run, own["metadata"]["name"], seconds=3600))


async def _is_there_before(field: Field, runs: list[Object]) -> None:
    for run in runs:
        fresh = await field.stage.fresh(run)
        for task in ("build", "test"):
            name = f"{run['metadata']['name']}-{task}"
            await field.create(_by_hand(fresh, name, seconds=3600))


async def _names_another(field: Field, runs: list[Object]) -> None:
    """Let a TaskRun of a run name another run, and one that was made by hand the first."""
    admitted = await _admitted(field, runs)
    for run in admitted:
        for own in await _own(field, run):
            metadata = _by_hand(runs[-1], "", seconds=1)["metadata"]
            await field.patch(own, {"metadata": {"ownerReferences": metadata["ownerReferences"]}})
    await _ends_soon(field, admitted)


async def _failed(field: Field, runs: list[Object]) -> None:
    for run in await _admitted(field, runs):
        for own in await _own(field, run):
            await field.patch(own, {"metadata": {"annotations": {FAILED_HOSTS: "a,b"}}})
    await _makes_anew(field, runs)


ROWS: Final[dict[str, Act]] = {
    "makes TaskRuns that name its admitted run": _with_machines(_names_its_run),
    "makes TaskRuns that name its admitted run where only runs get machines": _with_machines(
        _names_its_run, task_runs_need_admitted_run=True
    ),
    "makes TaskRuns with the labels of its run's": _with_machines(_looks_like_its_own),
    "gives a run's machine back by the end of a TaskRun made by hand": _with_machines(_ends_soon),
    "deletes the TaskRuns of its runs, which Tekton makes anew": _with_machines(_makes_anew),
    "puts TaskRuns of its own in place of those of its runs": _with_machines(_replaces),
    "makes the TaskRuns of its runs before Tekton does": _with_machines(_is_there_before),
    "lets a TaskRun of its run name another run": _with_machines(_names_another),
    "says that hosts failed for the TaskRuns of its runs": _with_machines(_failed),
}
