"""Attacks of a tenant (T1), each on a cluster with all services."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import (
    ELASTIC_JOB,
    MANAGED_LABEL,
    MIN_PARALLELISM,
    ORIGIN,
    PREBUILT_WORKLOAD,
    QUEUE,
    RECREATED_FROM,
    USER_PENDING,
)
from shared.contracts.messages.spokes import ORDER
from tests.attacks import (
    child_writes,
    counts,
    ending_pods,
    machine_writes,
    operator_pods,
    pod_writes,
    spellings,
    states,
    view_writes,
)
from tests.attacks import tenant_writes as writes
from tests.attacks.attack import Attack
from tests.attacks.field import TENANT, Act, Field, restarted
from tests.attacks.tenant_writes import START, owned

KINDS: Final = ("Job", "JobSet", "PipelineRun")
POD: Final = "Pod"
"""Waits only where the configuration lists it."""

NEVER_EXISTED: Final = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "ghost",
        "namespace": TENANT,
        "uid": "00000000-0000-0000-0000-000000000000",
    },
}

Metadata = Callable[[Field, Object], Awaitable[Object]]


def _plain(**metadata: Any) -> Metadata:
    async def found(_field: Field, _obj: Object) -> Object:
        return metadata

    return found


def _owned_by(kind: str, /, **more: Any) -> Metadata:
    """By what the tenant runs, admitted."""

    async def found(field: Field, _obj: Object) -> Object:
        return owned(field.running[kind], **more)

    return found


async def _owned_by_itself(_field: Field, obj: Object) -> Object:
    return owned(obj)


async def _owned_by_nobody(_field: Field, _obj: Object) -> Object:
    return owned(NEVER_EXISTED)


async def _owned_by_its_workload(field: Field, obj: Object) -> Object:
    workload = await field.workload(obj)
    return owned(workload or NEVER_EXISTED)


async def _owned_by_a_task_run(field: Field, _obj: Object) -> Object:
    return owned(next(iter(await field.all(kinds.TASK_RUN)), NEVER_EXISTED))


async def _owned_by_what_waits(field: Field, _obj: Object) -> Object:
    name = f"another-{len(await field.all(kinds.JOB))}"
    return owned(await field.waiting("Job", name))


async def _copy_of_the_running(field: Field, _obj: Object) -> Object:
    """The labels of a hub's copy, with the name of a Workload that has quota."""
    workload = await field.workload(field.running["Job"])
    name = workload["metadata"]["name"]
    return {
        "labels": {ORIGIN: "hub", PREBUILT_WORKLOAD: name},
        "annotations": {ORDER: "hub/1"},
    }


VARIANTS: Final[dict[str, Metadata]] = {
    "as it is": _plain(),
    "without its queue": _plain(labels={QUEUE: None}),
    "with an empty queue": _plain(labels={QUEUE: ""}),
    "in a queue that never existed": _plain(labels={QUEUE: "nowhere"}),
    "in another queue of its own that is full": _plain(labels={QUEUE: "own"}),
    "in a queue of another namespace": _plain(labels={QUEUE: "spare"}),
    "as a child of its admitted Job": _owned_by("Job"),
    "as a child of its admitted JobSet": _owned_by("JobSet"),
    "as a child of its admitted PipelineRun": _owned_by("PipelineRun"),
    "as a child of a TaskRun": _owned_by_a_task_run,
    "as owned by an admitted Job that does not control it": _owned_by("Job", controller=False),
    "as a child of itself": _owned_by_itself,
    "as a child of a Job that never existed": _owned_by_nobody,
    "as a child of its own Workload": _owned_by_its_workload,
    "as a child of a Job that waits": _owned_by_what_waits,
    "as a child of a Deployment of that uid": _owned_by("Job", apiVersion="apps/v1", kind="Deployment"),
    "as paused by its user": _plain(annotations={USER_PENDING: "true"}),
    "without our mark": _plain(annotations={USER_PENDING: None}),
    "without queue and mark": _plain(labels={QUEUE: None}, annotations={USER_PENDING: None}),
    "without any metadata": _plain(labels=None, annotations=None, finalizers=None),
    "as a copy of what runs": _copy_of_the_running,
    "as elastic": _plain(labels={ELASTIC_JOB: "true"}, annotations={ELASTIC_JOB: "true"}),
    "as partly admitted": _plain(annotations={MIN_PARALLELISM: "0"}),
    "as managed by a Workload": _plain(labels={MANAGED_LABEL: "true"}),
    "as a copy of a stopped run": _plain(annotations={RECREATED_FROM: "runs/x"}),
    "with a foreign finalizer": _plain(finalizers=["example.com/keep"]),
}  # fmt: skip


NOT_BEFORE: Final = ("as it is", "as a child of itself", "as a child of its own Workload")
"""What an object cannot say when it is created."""

NAMES_NO_QUEUE: Final = (
    *("without its queue", "with an empty queue", "without queue and mark", "without any metadata"),
)
"""A Job or JobSet that never named a queue is not managed. The rules give each PipelineRun one."""

NOT_HELD: Final = {
    "Job": NAMES_NO_QUEUE,
    "JobSet": NAMES_NO_QUEUE,
    "PipelineRun": (),
    POD: (*NAMES_NO_QUEUE, "as a child of a TaskRun"),
}
"""Variations that are not held when they are created. Tekton copies labels of a run to pods of TaskRuns."""


def starting(kind: str, variant: Metadata) -> Act:
    """Start what waits: in one write, in two, and again after a while."""

    async def act(field: Field) -> None:
        for name in ("at-once", "in-two"):
            obj = await field.waiting(kind, name)
            metadata = {"metadata": await variant(field, obj)}
            if name == "at-once":
                await field.patch(obj, {**metadata, **START[kind]})
            else:
                await field.patch(obj, metadata, START[kind])
            await field.stage.settle(3)
            await field.patch(obj, START[kind])
        await field.stage.settle(10)
        restarted(field)

    return act


def releasing(kind: str, variant: Metadata) -> Act:
    """Change the metadata of what runs, so that its quota might be given back; then let services restart."""

    async def act(field: Field) -> None:
        obj = field.running[kind]
        await field.patch(obj, {"metadata": await variant(field, obj)})
        await field.stage.settle(20)
        restarted(field)

    return act


def creating(kind: str, variant: Metadata, **spec: Any) -> Act:
    """Create it started, with these metadata; then start it."""

    async def act(field: Field) -> None:
        extra = await variant(field, NEVER_EXISTED)
        started = {"suspend": False} if kind in {"Job", "JobSet"} else {}
        for number in range(2):
            metadata = {key: value for key, value in extra.items() if value is not None}
            obj = await field.waiting(kind, f"new-{number}", **metadata)
            if not obj:
                continue
            await field.patch(obj, {"spec": {**started, **spec}}, START[kind])
        await field.stage.settle(10)
        restarted(field)

    return act


EITHER: Final = {
    "deletes the Workload of a waiting {kind} and starts it": writes.deletes_the_workload,
    "deletes the Workload of a running {kind} again and again": writes.deletes_the_workload_of_what_runs,
    "deactivates a running {kind} and keeps it running": writes.deactivates,
    "moves and empties the Workload of a waiting {kind}": writes.moves_the_workload,
    "replaces the Workload of a waiting {kind} by one that asks for nothing": writes.is_there_first,
    "starts a waiting {kind} each second": writes.starts_again_and_again,
    "starts a {kind} while all services restart": writes.starts_while_services_are_away,
    "holds a running {kind} and starts it at once": writes.holds_and_starts,
    "deletes a running {kind} and creates its name again": writes.recreates,
    "takes the queue off all that a running {kind} made": writes.strips_the_children,
    **spellings.EITHER,
}


def attacks() -> Iterator[Attack]:
    """The rows."""
    for kind in (*KINDS, POD):
        waits = kind == POD
        for words, variant in VARIANTS.items():
            yield _row(f"starts a waiting {kind} {words}", starting(kind, variant), waits)
            if words != "as it is":
                yield _row(f"changes a running {kind}: {words}", releasing(kind, variant), waits)
            if words not in NOT_BEFORE and words not in NOT_HELD[kind]:
                yield _row(
                    f"creates a {kind} {words}, and starts it", creating(kind, variant), waits
                )
        for words, act in EITHER.items():
            yield _row(words.format(kind=kind), _of(act, kind), waits)
    for words, single in SINGLE.items():
        yield _row(words, single)
    ways = (
        *child_writes.ROWS.items(),
        *view_writes.WAYS.items(),
        *machine_writes.ROWS.items(),
        *ending_pods.ROWS.items(),
        *operator_pods.ROWS.items(),
    )
    for words, single in ways:
        yield _row(words, single)
    for words, made in counts.WAYS.items():
        yield _row(words, counts.starting(made()))
    for words, single in pod_writes.WAYS.items():
        yield _row(words, single, pods_wait=True)


def _row(words: str, act: Act, pods_wait: bool = False) -> Attack:
    return Attack(threat="T1", way=f"tenant {words}", raid=act, pods_wait=pods_wait)


def _of(act: Callable[[Field, str], Awaitable[None]], kind: str) -> Act:
    async def acting(field: Field) -> None:
        await act(field, kind)

    return acting


SINGLE: Final[dict[str, Act]] = {
    "lets an admitted Job grow": writes.grows,
    "lets a Job grow that was admitted without pods": writes.grows_from_nothing,
    "lets a Job of an admitted JobSet grow": writes.grows_a_child,
    "lets a JobSet grow beyond what is counted": writes.grows_beyond_what_is_counted,
    "starts the Jobs of a waiting JobSet": writes.starts_the_children,
    "gives the Jobs of a waiting JobSet to one that runs": writes.hands_on_the_children,
    "asks for less in the queue and for more at the start": writes.asks_for_less_in_the_queue,
    "borrows the Workload of what runs": writes.borrows_a_workload,
    "says that another controller runs it": writes.is_managed_elsewhere,
    "deletes a running JobSet and keeps its Jobs": writes.orphans_the_children,
    "raises the priority of a Workload by hand": writes.raises_its_priority,
    "raises the priority of what runs by hand": writes.keeps_its_place_by_priority,
    "has the finally tasks of a waiting PipelineRun run": writes.runs_what_comes_last,
    "changes labels of a large waiting Job again and again": states.relabels,
    "moves a waiting Job from queue to queue until a log is full": states.hurries_through_queues,
    **spellings.SINGLE,
}
