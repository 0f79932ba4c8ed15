"""Nothing is left of short workloads that had admission checks: of each of our services, on a spoke too."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from services.simulator.scenarios.load import object_of
from services.simulator.scenarios.port import Verdict, run_world
from services.simulator.scenarios.spokes.clusters import CHECK, MultiClusterSystem
from services.simulator.scenarios.system import CLUSTER, RULES
from shared.contracts.controllers import MACHINES, WINDOW
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.checks import CheckState
from shared.contracts.windows import WINDOWS
from shared.testing.waiting import eventually
from shared.testing.world.world import World
from tests.conformance.seeds.stage import job, pool
from tests.simulation.swarm.test_growth import BOUNDED, EVER_SECONDS, sizes

SPOKE: Final = "east"
TEAM: Final = "team-a"
WORKLOADS: Final = 12
"""Of each sort in each of two rounds, whose remains are compared."""

MARGIN: Final = WORKLOADS // 2
"""The last message of a view always stays."""

FORGOTTEN_SECONDS: Final = 240.0
SETTINGS: Final = {"quota": {"forget_seconds": 10}, "provisioner": {"forget_seconds": 10}}
DISPATCHER: Final = {"forget_seconds": 10, "tidy_seconds": 10}
VIEWS: Final = ("ADMISSIONS", "OUTCOMES", "WORKLOADS", "CHECKS", "DISPATCHES")


FEW: Final = {
    "JobRef.": "held by the errors of Publisher",
    "Publisher._failed": "no more than FAILED_MAX",
    "RepeatedChanges._changed": "the least recent are dropped",
    "WorkloadState.": "held by the errors of Publisher",
}
"""What may grow beside that, up to a bound that this test does not reach: beginnings of names."""


LEFT_MAX: Final = 2
"""Messages in a view at the end: its last one, and the term of quota."""


class Sort(NamedTuple):
    """How workloads of one queue fare."""

    check: str
    answer: str
    """The last one about each workload."""

    has_job: bool = True
    """Otherwise it is a Workload alone, which no spoke can run."""


SORTS: Final = {
    "open": Sort("open", "Ready"),
    "closed": Sort("closed", "Rejected"),
    "machines": Sort("machines", "Ready"),
    "remote": Sort(CHECK, "Ready"),
    "nowhere": Sort(CHECK, "Rejected", has_job=False),
}
"""By the name of the queue."""

CHECKS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "open": (WINDOW, {WINDOWS: "0 0 1 * * for 744h"}),
    "closed": (WINDOW, {WINDOWS: "0 0 30 feb * for 1h"}),
    "machines": (MACHINES, {}),
}
"""Controller and annotations of each check beside that of MultiKueue."""


def test_services_and_views_keep_no_answer_about_workloads_that_are_gone() -> None:
    kept: list[Counter[str]] = []
    verdict = Verdict(seed=1)
    with World(1) as world:
        system = MultiClusterSystem(
            world, (SPOKE,), rules=RULES, dispatcher=DISPATCHER, beat_seconds=5, settings=SETTINGS
        )
        run_world(world, lambda: play(system, kept), verdict)
    assert verdict.problems == []
    first, second = kept
    bounded = (*BOUNDED, *FEW)
    grown = {
        name: (first[name], size)
        for name, size in second.items()
        if size > first[name] + MARGIN and not name.startswith(bounded)
    }
    assert grown == {}
    left = {log: second[f"view of {log}"] for log in VIEWS}
    assert {log: size for log, size in left.items() if size > LEFT_MAX} == {}


async def play(system: MultiClusterSystem, kept: list[Counter[str]]) -> None:
    await configure(system)
    system.serve()
    system.hub.serve("provisioner")
    await asyncio.sleep(20)
    for number in range(2):
        await come_and_go(system, number)
        await asyncio.sleep(FORGOTTEN_SECONDS)
        kept.append(sizes())
        for log in VIEWS:
            kept[-1][f"view of {log}"] = len(system.hub.server.view(log).messages)


async def configure(system: MultiClusterSystem) -> None:
    """Create a queue for each sort on the hub, with its check, and one for copies on the spoke."""
    await system.configure()
    for cluster in (CLUSTER, SPOKE):
        kube = system.kubes[cluster]
        await kube.create(kinds.NAMESPACE, object_of(kinds.NAMESPACE, TEAM))
        for name, (controller, notes) in CHECKS.items() if cluster == CLUSTER else ():
            check = object_of(kinds.ADMISSION_CHECK, name, spec={"controllerName": controller})
            check["metadata"]["annotations"] = notes
            await kube.create(kinds.ADMISSION_CHECK, check)
        for queue, sort in SORTS.items():
            checks = {"admissionChecks": [{"name": sort.check}]} if cluster == CLUSTER else None
            flavor, *queues = pool(queue, {"cpu": 100}, admissionChecksStrategy=checks)
            if queue == "open":
                await kube.create(kinds.RESOURCE_FLAVOR, flavor)
            for kind, obj in zip((kinds.CLUSTER_QUEUE, kinds.LOCAL_QUEUE), queues, strict=True):
                await kube.create(kind, obj)


def workload(name: str, queue: str) -> Object:
    """A Workload without a job."""
    template = job(name, queue, {"cpu": 1})["spec"]["template"]
    pods = [{"name": "main", "count": 1, "template": template}]
    spec = {"queueName": queue, "podSets": pods}
    return object_of(kinds.WORKLOAD, name, namespace=TEAM, spec=spec)


async def come_and_go(system: MultiClusterSystem, number: int) -> None:
    """Create workloads of each sort, wait until their checks are answered and delete them."""
    kube = system.hub.kube
    created = []
    for queue, sort in SORTS.items():
        for index in range(WORKLOADS):
            name = f"{queue}-round{number}-{index}"
            kind = kinds.JOB if sort.has_job else kinds.WORKLOAD
            obj = job(name, queue, {"cpu": 1}, seconds=5) if sort.has_job else workload(name, queue)
            created.append((kind, (await kube.create(kind, obj))["metadata"]["name"]))
    expected = Counter({(sort.check, sort.answer): WORKLOADS for sort in SORTS.values()})
    await until(lambda: answers(system, number) == expected, f"answers of round {number}")
    for kind, name in created:
        await kube.delete(kind, TEAM, name)

    async def gone() -> bool:
        jobs = [one for each in system.kubes.values() for one in (await each.list(kinds.JOB)).items]
        return not jobs and not (await kube.list(kinds.WORKLOAD)).items

    await eventually(gone, seconds=EVER_SECONDS, look_seconds=1)


async def until(condition: Callable[[], bool], what: str) -> None:
    async def yes() -> bool:
        return condition()

    await eventually(yes, what, seconds=EVER_SECONDS, look_seconds=1)


def answers(system: MultiClusterSystem, number: int) -> Counter[tuple[str, str]]:
    """How often each check gave each answer last, about the workloads of a round."""
    stored = system.hub.server.streams["CHECKS"].messages.values()
    last = {one.subject: CheckState.decode(one.data) for one in stored}
    about = [one for one in last.values() if f"-round{number}-" in one.name]
    return Counter((one.check, one.state) for one in about)
