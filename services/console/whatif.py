"""What if: the same play as `sluice simulate`, on a copy of the view."""

from collections.abc import Callable
from typing import Final

import structlog

from services.classifier.projection.policy import Policy
from services.console.access.rights import Touched
from services.console.documents import CourseFigures, SimulateAnswer, SimulateRequest
from services.console.refusals import Refusal
from services.quota.forecast import Course, Past, Picture
from services.quota.wire.inbound import nanoseconds
from services.whatif.changes import Changes, removable
from services.whatif.manifests import Manifest, to_manifest
from services.whatif.report import as_json, outcome_of, told
from shared.contracts.kube.kinds import Kind
from shared.runtime.command import CommandError

__all__ = ["Change"]

log = structlog.get_logger(__name__)

LOOK_EVERY: Final = 64
"""Instants of a play between two looks at the time."""


class Change:
    """What somebody wants to be different. Raises `Refusal` 422 where that cannot be understood."""

    def __init__(self, request: SimulateRequest, policy: Policy) -> None:
        self._policy = policy
        self._cluster = request.cluster
        self._lost_spoke = request.lost_spoke
        self._manifests: list[Manifest] = []
        self._removals: list[tuple[Kind, str, str | None]] = []
        try:
            for number, document in enumerate(request.manifests):
                self._manifests.append(to_manifest(f"manifests[{number}]", document))
            self._removals += [removable(name) for name in request.remove]
        except CommandError as error:
            raise _refused(error) from error

    @property
    def touched(self) -> Touched:
        """What it is about."""
        namespaces: set[str] = set()
        everywhere: list[str] = ["to lose a spoke"] if self._lost_spoke is not None else []
        outside: list[str] = []
        for manifest in self._manifests:
            if manifest.kind.namespaced:
                namespaces.add(manifest.object["metadata"].get("namespace") or "default")
            else:
                outside.append(f"to change {manifest.title}")
        for kind, name, namespace in self._removals:
            if not kind.namespaced:
                outside.append(f"to remove {kind.kind} {name}")
            elif namespace is None:
                everywhere.append(f"to remove each {kind.kind} {name}")
            else:
                namespaces.add(namespace)
        return Touched(
            namespaces=frozenset(namespaces),
            everywhere=", ".join(everywhere),
            outside=", ".join(outside),
        )

    def play(self, picture: Picture, past: Past, *, over: Callable[[], bool]) -> SimulateAnswer:
        """Change a copy, play both, and compare. `over` says when it has taken too long.

        Raises `Refusal`: 422 for a change that cannot be made, 503 where the time is over.
        """
        changes, changed = Changes(policy=self._policy), picture.copy()
        try:
            self._make(changes, picture, changed)
            before, after = picture.course(past), changed.course(past)
        except CommandError as error:
            raise _refused(error) from error
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            # Who reads objects expects them as the API server let them in, and nobody has asked it.
            log.warning("cannot read what somebody wants to try out", error=repr(error))
            raise Refusal(422, f"an API server would not take this change: {error}") from error
        problems = [problem for problem in changed.problems if problem not in picture.problems]
        for course in (before, after):
            course.run(done=_until(over))
            if over():
                raise Refusal(503, "the play took too long: ask for less", retry_after_seconds=60)
        if problems:
            raise Refusal(422, problems[0])
        new = [after.fates[ident] for ident in changes.added if ident in after.fates]
        start = nanoseconds(picture.at)
        was, is_ = (
            CourseFigures.model_validate(as_json(outcome_of(course, start=start)))
            for course in (before, after)
        )
        return SimulateAnswer(
            changes=changes.notes, before=was, after=is_, submitted=list(told(new))
        )

    def _make(self, changes: Changes, picture: Picture, changed: Picture) -> None:
        changes.apply(changed, self._manifests, cluster=self._cluster)
        for removal in self._removals:
            changes.remove(changed, *removal)
        if self._lost_spoke is not None:
            changes.lose_spoke(picture, changed, self._lost_spoke)


def _refused(error: CommandError) -> Refusal:
    return Refusal(422, f"{error}{f' ({error.hint})' if error.hint else ''}")


def _until(over: Callable[[], bool]) -> Callable[[Course], bool]:
    instants = 0

    def done(_course: Course) -> bool:
        nonlocal instants
        instants += 1
        return instants % LOOK_EVERY == 0 and over()

    return done
