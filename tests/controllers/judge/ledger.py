"""What follows from a history: who ran when, who was let go when, and how much ran at once."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.controllers.judge.history import Change, History
from tests.controllers.place import condition, ended, held, owned_by, owner_of
from tests.controllers.servers.client import Json

NEVER: Final = 1 << 62
"""A revision that does not come."""


@dataclass(frozen=True, slots=True)
class Span:
    """From one revision to another; `end` is `NEVER` while it goes on."""

    begin: int
    end: int
    amount: int = 1


def first(changes: Iterable[Change], holds: Callable[[Json], bool]) -> int:
    """The revision from which something holds; `NEVER` if it never did."""
    return next((one.revision for one in changes if not one.gone and holds(one.obj)), NEVER)


def releases(changes: Iterable[Change]) -> list[int]:
    """Every revision at which a Job or PipelineRun was let go. One of another uid begins anew."""
    found, uid, was_held = [], "", True
    for revision, _, obj, gone in changes:
        if obj["metadata"]["uid"] != uid:
            uid, was_held = obj["metadata"]["uid"], True
        is_held = held(obj) or gone
        if was_held and not is_held and not ended(obj):
            found.append(revision)
        was_held = is_held
    return found


def is_running(pod: Json) -> bool:
    """Whether its containers run; what is deleted runs until they end."""
    return str(pod["status"].get("phase")) == "Running"


def lives(history: History, namespace: str, owner: str | None = None) -> Iterator[Span]:
    """From the start to the end of each pod that ran: of one Job or PipelineRun, or of all."""
    for key in history.keys("Pod", namespace):
        begin = NEVER
        for revision, _, pod, gone in history.of(*key):
            runs = is_running(pod) and not gone
            if owner is not None and owner_of(pod) != owner:
                continue
            if begin == NEVER and runs:
                begin = revision
            elif begin != NEVER and not runs:
                yield Span(begin, revision, cpus(pod))
                begin = NEVER
        if begin != NEVER:
            yield Span(begin, NEVER, cpus(history.of(*key)[-1].obj))


def cpus(pod: Json) -> int:
    """What the containers of a pod request, in whole CPUs; at least one."""
    requests = [one.get("resources", {}).get("requests", {}) for one in pod["spec"]["containers"]]
    return max(1, sum(int(one.get("cpu", 0)) for one in requests if one.get("cpu", "1").isdigit()))


def peak(spans: Iterable[Span]) -> int:
    """The most that was there at once. What ends at a revision makes room for what begins there."""
    steps: list[tuple[int, int]] = []
    for span in spans:
        steps += [(span.begin, span.amount), (span.end, -span.amount)]
    most = now = 0
    for _, amount in sorted(steps):
        now += amount
        most = max(most, now)
    return most


def runs(history: History, namespace: str) -> Iterator[Span]:
    """From the release to the end of each PipelineRun."""
    for key in history.keys("PipelineRun", namespace):
        changes = history.of(*key)
        for begin in releases(changes):
            over = (
                one.revision
                for one in changes
                if one.revision > begin and (one.gone or ended(one.obj))
            )
            yield Span(begin, next(over, NEVER))


def start_times(changes: Iterable[Change]) -> set[str]:
    """When a PipelineRun, or each of one name, began by its own status."""
    found = {str((one.obj.get("status") or {}).get("startTime") or "") for one in changes}
    return found - {""}


def admitted_at(history: History, namespace: str, uid: str, revision: int) -> bool:
    """Whether a Workload of a job said at a revision that it may run."""
    for key in history.keys("Workload", namespace):
        before = [one for one in history.of(*key) if one.revision < revision]
        last = before[-1] if before else None
        if last is None or last.gone or not owned_by(last.obj, uid):
            continue
        if condition(last.obj, "Admitted") == "True":
            return True
    return False


def unadmitted_starts(history: History, namespace: str, kind: str) -> Iterator[str]:
    """Every release that no Workload had permitted before, of jobs that name a queue."""
    for key in history.keys(kind, namespace):
        changes = history.of(*key)
        for revision in releases(changes):
            obj = next(one.obj for one in changes if one.revision == revision)
            if is_queued(obj) and not admitted_at(
                history, namespace, obj["metadata"]["uid"], revision
            ):
                yield f"{kind} {key.name} was let go before its Workload was admitted"


def is_queued(obj: Json) -> bool:
    """Whether it names a queue."""
    return bool((obj["metadata"].get("labels") or {}).get("kueue.x-k8s.io/queue-name"))


def in_order(history: History, namespace: str, kind: str, names: Iterable[str]) -> Iterator[str]:
    """What was let go before the one named before it."""
    last, before = 0, ""
    for name in names:
        [begin, *_] = releases(history.of(kind, namespace, name)) or [NEVER]
        if begin == NEVER:
            yield f"{name} was never let go"
        if begin < last:
            yield f"{name} was let go before {before}"
        last, before = begin, name


def runs_after(history: History, namespace: str, later: str, earlier: str) -> Iterator[str]:
    """Pods of one job that began while pods of another one still ran."""
    over = max((span.end for span in lives(history, namespace, earlier)), default=0)
    begin = min((span.begin for span in lives(history, namespace, later)), default=NEVER)
    if over == 0:
        yield f"no pod of {earlier} ever ran"
    if begin == NEVER:
        yield f"no pod of {later} ever ran"
    if begin < over:
        yield f"{later} ran while pods of {earlier} did"


def released_after(
    history: History, namespace: str, kind: str, later: str, earlier: str
) -> Iterator[str]:
    """A job that was let go while pods of another one still ran."""
    over = max((span.end for span in lives(history, namespace, earlier)), default=NEVER)
    [begin, *_] = releases(history.of(kind, namespace, later)) or [0]
    if begin < over:
        yield f"{later} was let go while pods of {earlier} ran"
