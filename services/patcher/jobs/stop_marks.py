"""The mark that a stop leaves on a job, so that no release of an earlier decision comes behind it. Pure.

1. A replica is about to carry out an admission. It has read the job, which is held.
2. Quota takes the admission back. Another replica finds the job still held, or released by a third one and
   stops it. Either way it reports so, and quota gives away what that frees.
3. The release of the first replica arrives. The job is held, as it was read: no other test refuses it.

Therefore each stop writes into the job which decision it carries out: in the same request if there is
something to stop, else in one of its own. Each release tests that the mark is the one that it has read, and
looks whether that is of a later decision.

A stop may be late as well: another replica has carried it out, and quota has admitted the job again. A
release leaves the mark as it is, so that each stop tests it, too; and whoever is about to stop what runs
asks for the last decision before.

Who is refused a release reports so, and quota gives it away as well, while a release of the same decision by
another replica may be on its way. So a refusal marks the job, too, before it is reported: with the decision
that was refused. Whoever finds the mark of its own decision reports once more that it was refused.

A tenant can write annotations. A mark proves nothing: whoever finds a later one asks for the last decision.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from services.patcher.cluster.patches import JsonPatch, if_unchanged
from shared.bus.headers import EVENT_ID
from shared.bus.port import LaterError
from shared.contracts.kube.bodies import Body, annotations_of
from shared.contracts.kube.names import STOPPED_BY
from shared.contracts.kube.numbers import whole_number
from shared.contracts.messages.admissions import Admission
from shared.contracts.subjects import RULING
from shared.integrations import Integration, ObjectError
from shared.integrations.pointers import pointer
from shared.kube.port import Patch
from shared.telemetry import probes

Order = tuple[int, int, int]

Check = Callable[[], Awaitable[None]]
"""Raises `LaterError` if the decision is not the last one any more."""

_ANNOTATIONS: Final = pointer(("metadata", "annotations"))
_MARK: Final = pointer(("metadata", "annotations", STOPPED_BY))
_NO_STOP: Final = (-1, -1, -1)


def order_in(headers: Mapping[str, str]) -> Order | None:
    """`Admission.order` of a decision that cannot be read, by its headers; None if they do not tell."""
    _, term, number = (headers.get(EVENT_ID, "") + "::").split(":")[:3]
    epoch, _, _ = headers.get(RULING, "").partition(".")
    match [whole_number(one) for one in (epoch, term, number)]:
        case [int() as epoch_then, int() as term_then, int() as number_then]:
            return (epoch_then, term_then, number_then)
        case _:
            return None


def _stopped_by(job: Body) -> Order:
    """The decision by which the job was stopped last; one before all others if it was never stopped."""
    match [whole_number(one) for one in annotations_of(job).get(STOPPED_BY, "").split(".")]:
        case [int() as epoch, int() as term, int() as number]:
            return (epoch, term, number)
        case _:
            return _NO_STOP


def is_stopped_later(job: Body, admission: Admission) -> bool:
    """Whether the mark of the job is of a later decision than this one."""
    return _stopped_by(job) > admission.order


def is_refused(job: Body, admission: Admission) -> bool:
    """Whether the mark of the job is of this decision: a replica's release of it was refused."""
    return _stopped_by(job) == admission.order


def was_refused(what: str) -> ObjectError:
    """The error for a release of which the job says that it was refused."""
    probes.REFUSED_BEFORE.fired += 1
    return ObjectError(f"{what}: the cluster has refused this release to another replica")


def check_not_stopped(job: Body, admission: Admission, *, known: Body) -> None:
    """Raise `LaterError` if the job was stopped by a later decision, unless `known` told so already.

    Whoever knew it has asked for the last decision before the job was read again. Raises `ObjectError` if
    the release of this decision was refused to somebody.
    """
    if is_refused(job, admission):
        raise was_refused(str(job["metadata"]["name"]))
    if is_stopped_later(job, admission) and _stopped_by(job) != _stopped_by(known):
        probes.RELEASE_TOO_LATE.fired += 1
        raise LaterError(f"{job['metadata']['name']} was stopped by a later decision")


def mark_patch(job: Body, admission: Admission) -> JsonPatch | None:
    """A patch that only marks a job that is held; None if that is done."""
    if is_refused(job, admission):
        return None
    probes.STOP_MARKED.fired += 1
    return if_unchanged(job, *marking(job, admission))


def held_mark_patch(job: Body, admission: Admission, integration: Integration) -> Patch | None:
    """As `mark_patch`, for a job that has to be held. Raises `LaterError` if it is not held any more."""
    if not integration.held(job):
        raise LaterError(f"{job['metadata']['name']} was released meanwhile")
    return mark_patch(job, admission)


def marking(job: Body, admission: Admission) -> JsonPatch:
    """The operations that mark a job in the patch that stops it. They fail if its mark is another one."""
    text = ".".join(map(str, admission.order))
    added = {"op": "add", "path": _ANNOTATIONS, "value": {STOPPED_BY: text}}
    if "annotations" in job["metadata"]:
        added = {"op": "add", "path": _MARK, "value": text}
    return [*mark_tests(job), added]


def mark_tests(job: Body) -> JsonPatch:
    """Operations that fail if the mark is not the one of `job`: the API server takes null for absent."""
    if "annotations" not in job["metadata"]:
        return [{"op": "test", "path": _ANNOTATIONS, "value": None}]
    return [{"op": "test", "path": _MARK, "value": annotations_of(job).get(STOPPED_BY)}]
