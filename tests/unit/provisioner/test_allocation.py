"""Each rule of allocation, one case each."""

from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from services.provisioner.allocation.ledger import AllocationLedger
from services.provisioner.allocation.results import (
    AllocationOutcome,
    Failed,
    Launching,
    LaunchRefused,
    MachineBroken,
    MachineGone,
    MachineObservation,
    MachineUp,
    Placed,
    Result,
    Waiting,
)
from services.provisioner.config.host_config import LocalPlatform, PlatformConfig
from services.provisioner.naming import machine_name
from services.provisioner.task_runs.requests import HostRequest
from tests.unit.provisioner.builders import (
    NOON,
    PLATFORM,
    dynamic,
    ledger,
    machine,
    pool,
    request,
    requests,
    round_,
    slot,
    static,
)


def ordered(name: str, attempt: int = 1) -> str:
    """The name of the machine for a TaskRun."""
    return machine_name(cluster="hub", uid=f"uid-{name}", attempt=attempt, tag="prod")


def on(host: str) -> Placed:
    return Placed(host=host, address=f"at-{host}")


def error(text: str) -> Failed:
    return Failed(message=f"Error allocating host: {text}")


BUSY = Waiting(message=f"all hosts of {PLATFORM} are busy")
STARTING = Waiting(message=f"a machine of {PLATFORM} is starting")
TIMED_OUT = error("timed out waiting for instance address")


def full(count: int, maximum: int) -> Waiting:
    return Waiting(
        message=f"{count} of {maximum} maxInstances running for prod, "
        "waiting for existing tasks to finish"
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    config: PlatformConfig | str
    asking: list[HostRequest] = field(default_factory=list)
    before: AllocationLedger = field(default_factory=ledger)
    settled: list[str] = field(default_factory=list)
    observations: dict[str, MachineObservation] = field(default_factory=dict)
    used_by_other_platforms: dict[str, int] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)
    """By name."""

    machines: dict[str, str] = field(default_factory=dict)
    """Name to state, afterwards."""

    slots: dict[str, str] = field(default_factory=dict)
    """TaskRun to host, afterwards."""


LOCAL = {
    "local platform builds in the pod without a record": Case(
        config=LocalPlatform(platform=PLATFORM),
        asking=requests("a"),
        results={"a": Placed(host="localhost", address="")},
    ),
    "a platform that cannot be served fails with the reason": Case(
        config="failed to read host config: x", asking=requests("a"),
        results={"a": Failed(message="failed to read host config: x")},
    ),
}  # fmt: skip

STATIC = {
    "the host with the most free places is taken": Case(
        config=static(small=1, large=3), asking=requests("a"),
        results={"a": on("large")}, slots={"a": "large"},
    ),
    "of equals the first by name is taken, always": Case(
        config=static(y=1, x=1), asking=requests("a"), results={"a": on("x")}, slots={"a": "x"},
    ),
    "no host gets more than its concurrency": Case(
        config=static(x=2), asking=requests("a b c"),
        results={"a": on("x"), "b": on("x"), "c": BUSY}, slots={"a": "x", "b": "x"},
    ),
    "a free slot goes to the oldest waiting TaskRun": Case(
        config=static(x=1), before=ledger(slots=[slot("gone", "x")]),
        asking=[request("young", created=2), request("old", created=1)],
        results={"old": on("x"), "young": BUSY}, slots={"old": "x"},
    ),
    "equally old waiters are served by name": Case(
        config=static(x=1), asking=[request("b"), request("a")],
        results={"a": on("x"), "b": BUSY}, slots={"a": "x"},
    ),
    "a host that failed for a TaskRun is not offered to it again": Case(
        config=static(x=5, y=1), asking=[request("a", failed=["x"])],
        results={"a": on("y")}, slots={"a": "y"},
    ),
    "a waiting TaskRun that can use no free host does not block the next one": Case(
        config=static(x=1, y=1), before=ledger(slots=[slot("c", "y")]),
        asking=[request("a", failed=["x"]), request("b", created=1), request("c", created=2)],
        settled=["uid-c"],
        results={"a": BUSY, "b": on("x"), "c": on("y")}, slots={"b": "x", "c": "y"},
    ),
    "when all hosts failed for it, a TaskRun fails with their names": Case(
        config=static(x=1, y=1), asking=[request("a", failed=["x", "y", "old"])],
        results={"a": error("all available hosts for the platform have failed: x,y")},
    ),
    "a TaskRun with a slot keeps it": Case(
        config=static(x=1, y=9), before=ledger(slots=[slot("a", "x")]), asking=requests("a"),
        results={"a": on("x")}, slots={"a": "x"},
    ),
    "slots of other platforms on a host count as used": Case(
        config=static(x=2), used_by_other_platforms={"x": 1}, asking=requests("a b"),
        results={"a": on("x"), "b": BUSY}, slots={"a": "x"},
    ),
    "a slot on a removed host is still released": Case(
        config=static(x=1), before=ledger(slots=[slot("a", "removed")]),
    ),
    "a host above its lowered concurrency gets no new TaskRun": Case(
        config=static(x=1), before=ledger(slots=[slot("a", "x"), slot("b", "x")]), asking=requests("a b c"),
        results={"a": on("x"), "b": on("x"), "c": BUSY}, slots={"a": "x", "b": "x"},
    ),
}  # fmt: skip

DYNAMIC = {
    "a machine is ordered for a TaskRun": Case(
        config=dynamic(), asking=requests("a"),
        results={"a": Launching(host=ordered("a"))}, machines={ordered("a"): "launching"},
    ),
    "no second machine is ordered while the first one starts": Case(
        config=dynamic(5), asking=requests("a"),
        before=ledger(machines=[machine("m", "launching", holder="a")], attempts={"uid-a": 1}),
        results={"a": Launching(host="m")}, machines={"m": "launching"},
    ),
    "a running machine goes to its TaskRun": Case(
        config=dynamic(), asking=requests("a"), observations={"m": MachineUp(address="at-m")},
        before=ledger(machines=[machine("m", "launching", holder="a")]),
        results={"a": on("m")}, machines={"m": "running"}, slots={"a": "m"},
    ),
    "no more than the maximum are ordered, and the others wait": Case(
        config=dynamic(2), asking=requests("a b c"),
        results={"a": Launching(host=ordered("a")), "b": Launching(host=ordered("b")), "c": full(2, 2)},
        machines={ordered("a"): "launching", ordered("b"): "launching"},
    ),
    "a terminating machine counts against the maximum": Case(
        config=dynamic(1), asking=requests("a"), before=ledger(machines=[machine("m", "terminating")]),
        results={"a": full(1, 1)}, machines={"m": "terminating"},
    ),
    "the oldest waiting TaskRun is served when a machine is gone": Case(
        config=dynamic(1), asking=[request("b", created=2), request("a", created=1)],
        before=ledger(machines=[machine("m", "terminating")]), observations={"m": MachineGone()},
        results={"a": Launching(host=ordered("a")), "b": full(1, 1)}, machines={ordered("a"): "launching"},
    ),
    "a machine is terminated after its TaskRun": Case(
        config=dynamic(), before=ledger(machines=[machine("m", holder="a")], slots=[slot("a", "m")]),
        machines={"m": "terminating"},
    ),
    "a starting machine is terminated after its TaskRun": Case(
        config=dynamic(), before=ledger(machines=[machine("m", "launching", holder="a")]),
        machines={"m": "terminating"},
    ),
    "a machine that comes up after its TaskRun ended is terminated": Case(
        config=dynamic(), before=ledger(machines=[machine("m", "launching", holder="a")]),
        observations={"m": MachineUp(address="at-m")}, machines={"m": "terminating"},
    ),
    "a machine without address at its deadline is terminated and fails its TaskRun": Case(
        config=dynamic(), asking=requests("a"),
        before=ledger(machines=[machine("m", "launching", holder="a", age=600)], attempts={"uid-a": 1}),
        results={"a": TIMED_OUT}, machines={"m": "terminating"},
    ),
    "an address at the deadline is accepted": Case(
        config=dynamic(), asking=requests("a"), observations={"m": MachineUp(address="at-m")},
        before=ledger(machines=[machine("m", "launching", holder="a", age=600)]),
        results={"a": on("m")}, machines={"m": "running"}, slots={"a": "m"},
    ),
    "a broken machine is replaced by one with another name": Case(
        config=dynamic(2), asking=requests("a"), observations={ordered("a"): MachineBroken(reason="x")},
        before=ledger(machines=[machine(ordered("a"), "launching", holder="a")], attempts={"uid-a": 1}),
        results={"a": Launching(host=ordered("a", 2))},
        machines={ordered("a"): "terminating", ordered("a", 2): "launching"},
    ),
    "a broken machine counts against the maximum until it is gone": Case(
        config=dynamic(1), asking=requests("a"), observations={"m": MachineBroken(reason="x")},
        before=ledger(machines=[machine("m", "launching", holder="a")], attempts={"uid-a": 1}),
        results={"a": full(1, 1)}, machines={"m": "terminating"},
    ),
    "after three broken machines the TaskRun fails": Case(
        config=dynamic(), asking=requests("a"), observations={"m": MachineBroken(reason="no disk")},
        before=ledger(machines=[machine("m", "launching", holder="a")], attempts={"uid-a": 3}),
        results={"a": error("3 machines failed to start, the last because no disk")},
        machines={"m": "terminating"},
    ),
    "a machine that vanishes while it starts is replaced": Case(
        config=dynamic(), asking=requests("a"), observations={ordered("a"): MachineGone()},
        before=ledger(machines=[machine(ordered("a"), "launching", holder="a")], attempts={"uid-a": 1}),
        results={"a": Launching(host=ordered("a", 2))}, machines={ordered("a", 2): "launching"},
    ),
    "a machine that vanishes under a build is not replaced": Case(
        config=dynamic(), asking=requests("a"), settled=["uid-a"], observations={"m": MachineGone()},
        before=ledger(machines=[machine("m", holder="a")], slots=[slot("a", "m")]),
    ),
    "a refused order fails the TaskRun and is terminated all the same": Case(
        config=dynamic(), asking=requests("a"), observations={"m": LaunchRefused(reason="no such image")},
        before=ledger(machines=[machine("m", "launching", holder="a")]),
        results={"a": error("no such image")}, machines={"m": "terminating"},
    ),
    "a refusal is remembered until the TaskRun ends": Case(
        config=dynamic(), asking=requests("a"), before=ledger(refusals={"uid-a": "no"}),
        results={"a": Failed(message="no")},
    ),
    "a TaskRun with a failed host gets no second machine": Case(
        config=dynamic(), asking=[request("a", failed=["m"])],
        results={"a": error("failed to provision host")},
    ),
    "a TaskRun that failed gets no machine later": Case(
        config=dynamic(), asking=requests("a"), settled=["uid-a"],
    ),
    "an observation of a terminating machine changes nothing": Case(
        config=dynamic(), before=ledger(machines=[machine("m", "terminating")]),
        observations={"m": MachineUp(address="at-m")}, machines={"m": "terminating"},
    ),
    "a starting machine of a removed platform is terminated": Case(
        config="no hosts configured", asking=requests("a"),
        before=ledger(machines=[machine("m", "launching", holder="a")]),
        results={"a": Failed(message="no hosts configured")}, machines={"m": "terminating"},
    ),
    "a used machine of a removed platform stays until its TaskRun ends": Case(
        config="no hosts configured", asking=requests("a"), settled=["uid-a"],
        before=ledger(machines=[machine("m", holder="a")], slots=[slot("a", "m")]),
        results={"a": on("m")}, machines={"m": "running"}, slots={"a": "m"},
    ),
}  # fmt: skip

POOL = {
    "a pool without machines orders one": Case(
        config=pool(), asking=requests("a"),
        results={"a": Launching(host=ordered("a"))}, machines={ordered("a"): "launching"},
    ),
    "TaskRuns that fit on a starting machine wait for it": Case(
        config=pool(2, concurrency=2), asking=requests("a b c"),
        results={"a": Launching(host=ordered("a")), "b": STARTING, "c": Launching(host=ordered("c"))},
        machines={ordered("a"): "launching", ordered("c"): "launching"},
    ),
    "a pool orders no second machine while the first one starts": Case(
        config=pool(2), asking=requests("a"),
        before=ledger(machines=[machine("m", "launching", shared=True)]),
        results={"a": STARTING}, machines={"m": "launching"},
    ),
    "a running machine of a pool is shared": Case(
        config=pool(concurrency=2), asking=requests("a b c"),
        before=ledger(machines=[machine("m", shared=True)]),
        results={"a": on("m"), "b": on("m"), "c": full(1, 1)}, machines={"m": "running"},
        slots={"a": "m", "b": "m"},
    ),
    "an idle machine of a pool stays": Case(
        config=pool(),
        before=ledger(machines=[machine("m", shared=True, holder="a")], slots=[slot("a", "m")]),
        machines={"m": "running"},
    ),
    "an old machine gets no new TaskRun and keeps its present ones": Case(
        config=pool(2, max_age=60), asking=requests("a b"),
        before=ledger(machines=[machine("m", shared=True, age=60)], slots=[slot("a", "m")]),
        results={"a": on("m"), "b": Launching(host=ordered("b"))},
        machines={"m": "running", ordered("b"): "launching"}, slots={"a": "m"},
    ),
    "an old machine is terminated once idle": Case(
        config=pool(max_age=60),
        before=ledger(machines=[machine("m", shared=True, age=60)], slots=[slot("a", "m")]),
        machines={"m": "terminating"},
    ),
    "an old machine counts against the maximum until it is gone": Case(
        config=pool(1, max_age=60), asking=requests("a b"),
        before=ledger(machines=[machine("m", shared=True, age=60)], slots=[slot("a", "m")]),
        results={"a": on("m"), "b": full(1, 1)}, machines={"m": "running"}, slots={"a": "m"},
    ),
    "a TaskRun whose hosts all failed gets a new machine below the maximum": Case(
        config=pool(2), asking=[request("a", failed=["m"])],
        before=ledger(machines=[machine("m", shared=True)]),
        results={"a": Launching(host=ordered("a"))}, machines={"m": "running", ordered("a"): "launching"},
    ),
    "a TaskRun whose hosts all failed fails at the maximum": Case(
        config=pool(1), asking=[request("a", failed=["m"])],
        before=ledger(machines=[machine("m", shared=True)]),
        results={"a": error("all available hosts for the platform have failed: m")},
        machines={"m": "running"},
    ),
    "a starting machine of a pool outlives its TaskRun": Case(
        config=pool(), before=ledger(machines=[machine("m", "launching", shared=True, holder="a")]),
        machines={"m": "launching"},
    ),
    "an overdue machine of a pool fails only its own TaskRun": Case(
        config=pool(2), asking=requests("a b"), before=ledger(
            machines=[machine("m", "launching", shared=True, holder="a", age=600)], attempts={"uid-a": 1}),
        results={"a": TIMED_OUT, "b": Launching(host=ordered("b"))},
        machines={"m": "terminating", ordered("b"): "launching"},
    ),
    "idle machines of a former pool are terminated": Case(
        config=static(x=1), before=ledger(machines=[machine("m", shared=True)]),
        machines={"m": "terminating"},
    ),
    "an exclusive machine is not shared when its platform becomes a pool": Case(
        config=pool(2), asking=requests("a b"), settled=["uid-a"],
        before=ledger(machines=[machine("m", holder="a")], slots=[slot("a", "m")]),
        results={"a": on("m"), "b": Launching(host=ordered("b"))},
        machines={"m": "running", ordered("b"): "launching"}, slots={"a": "m"},
    ),
}  # fmt: skip

CASES = {**LOCAL, **STATIC, **DYNAMIC, **POOL}


def run(case: Case) -> AllocationOutcome:
    return round_(
        config=case.config,
        asking=case.asking,
        before=case.before,
        settled=case.settled,
        observations=case.observations,
        used_by_other_platforms=case.used_by_other_platforms,
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_round_gives_expected_results_and_ledger(case: Case) -> None:
    outcome = run(case)

    results = {
        uid.removeprefix("uid-"): replace(result, user="") if isinstance(result, Placed) else result
        for uid, result in outcome.results.items()
    }
    assert results == case.results
    assert {m.name: m.state for m in outcome.ledger.machines.values()} == case.machines
    assert {s.name: s.host for s in outcome.ledger.slots.values()} == case.slots


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_repeated_round_changes_nothing(case: Case) -> None:
    first = run(case)
    again = run(replace(case, before=first.ledger, observations={}))

    assert again.ledger is first.ledger, "an unchanged ledger is not published again"
    assert again.results == first.results
    assert again.events == ()


def test_ledger_forgets_attempts_and_refusals_of_ended_task_run() -> None:
    before = ledger(attempts={"uid-a": 2, "uid-b": 1}, refusals={"uid-a": "no"})
    outcome = round_(config=dynamic(), before=before, asking=[request("b")], settled=["uid-b"])
    assert outcome.ledger.attempts == {"uid-b": 1}
    assert outcome.ledger.refusals == {}


def test_deadline_counts_from_order() -> None:
    outcome = round_(config=dynamic(timeout=90), asking=requests("a"))
    (ordered_machine,) = outcome.ledger.machines.values()
    assert ordered_machine.deadline == NOON + timedelta(seconds=90)


def test_machine_name_is_unique_to_cluster_task_run_and_attempt() -> None:
    names = {
        machine_name(cluster=cluster, uid=uid, attempt=attempt, tag="prod-arm64")
        for cluster in ("hub", "spoke")
        for uid in ("u1", "u2")
        for attempt in (1, 2)
    }
    assert len(names) == 8
    assert all(len(name) <= 63 for name in names)
    assert len(machine_name(cluster="c", uid="u", attempt=1, tag="t" * 80)) <= 63
