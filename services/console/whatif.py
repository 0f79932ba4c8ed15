"""What if: the same play as `sluice simulate`, on a copy of the view."""

from collections.abc import Callable
from typing import Final

from services.classifier.policy import DEFAULT_POLICY
from services.console.documents import CourseFigures, SimulateAnswer, SimulateRequest
from services.console.refusals import Refusal
from services.ctl.errors import CommandError
from services.ctl.manifests import to_manifest
from services.ctl.whatif.changes import Changes
from services.ctl.whatif.command import remove
from services.ctl.whatif.report import as_json, outcome_of, told
from services.quota.forecast import Course, Past, Picture
from services.quota.translate import nanoseconds

__all__ = ["play"]

LOOK_EVERY: Final = 64
"""Instants of a play between two looks at the time."""


def play(
    picture: Picture, past: Past, request: SimulateRequest, *, over: Callable[[], bool]
) -> SimulateAnswer:
    """Change a copy, play both, and compare. `over` says when it has taken too long.

    Raises `Refusal`: 422 for a change that cannot be made, 503 where the time is over.
    """
    changes = Changes(policy=DEFAULT_POLICY)
    changed = picture.copy()
    try:
        manifests = [
            to_manifest(f"manifests[{number}]", document)
            for number, document in enumerate(request.manifests)
        ]
        changes.apply(changed, manifests, cluster=request.cluster)
        for name in request.remove:
            remove(changes, changed, name)
        if request.lost_spoke is not None:
            changes.lose_spoke(changed, request.lost_spoke)
    except CommandError as error:
        raise Refusal(422, f"{error}{f' ({error.hint})' if error.hint else ''}") from error
    start = nanoseconds(picture.at)
    before, after = (each.course(past) for each in (picture, changed))
    problems = [problem for problem in changed.problems if problem not in picture.problems]
    for course in (before, after):
        course.run(done=_until(over))
        if over():
            raise Refusal(503, "the play took too long: ask for less", retry_after_seconds=60)
    if problems:
        raise Refusal(422, problems[0])
    new = [after.fates[ident] for ident in changes.added if ident in after.fates]
    was, is_ = (
        CourseFigures.model_validate(as_json(outcome_of(course, start=start)))
        for course in (before, after)
    )
    return SimulateAnswer(changes=changes.notes, before=was, after=is_, submitted=list(told(new)))


def _until(over: Callable[[], bool]) -> Callable[[Course], bool]:
    instants = 0

    def done(_course: Course) -> bool:
        nonlocal instants
        instants += 1
        return instants % LOOK_EVERY == 0 and over()

    return done
