"""Mistakes by which quota and pods of other kinds part, each as a replacement of one function.

`python -m tests.simulation.kinds.kinds_mistakes [first] [last] [word]` searches the seeds that find each
of them, or those with that word.
"""

import sys
from typing import Any, Final

from services.classifier.webhook import mutation
from services.patcher.jobs.groups import GroupController, Released
from shared.integrations import Integrations
from shared.integrations.groups import Groups, Member
from shared.integrations.groups.marks import group_marks
from tests.simulation.mistakes import Mistake, search

_EARLY: Final = "kueue.x-k8s.io/pod-group-fast-admission"
_release = GroupController.release
_leave = Groups.leave


def waits_for_all(obj: Any, integration: Any, spec: Any) -> Any:
    """Let a StatefulSet's group wait for pods that come when the ones before them are ready."""
    labels, annotations = group_marks(obj, integration, spec)
    annotations.pop(_EARLY, None)
    return labels, annotations


def holds_every_pod(*_: Any) -> bool:
    """Hold a pod although what made it has quota for it."""
    return False


def takes_a_deleted_pod_for_gone(self: Member) -> bool:
    """Count a pod no more while it ends."""
    return not self.gated and not self.ended and not self.deleted


async def releases_once(self: Any, group: Any, *more: Any, **how: Any) -> Released:
    """Let nothing go that comes after the release of its group."""
    return Released() if group.runs else await _release(self, group, *more, **how)


def keeps_an_empty_group(self: Any, *where: Any) -> Any:
    """Do not tell that the last object of a group is gone."""
    left = _leave(self, *where)
    return left if left is None or left.members else None


MISTAKES: dict[str, Mistake] = {
    "a group whose pods come one after another": Mistake(
        mutation, "group_marks", waits_for_all, 3, "of 2 pods, and nothing else"
    ),
    "a pod of what waits as a whole": Mistake(
        Integrations, "runs_with_controller", holds_every_pod, 3, "has a Workload of its own"
    ),
    "a pod that ends": Mistake(
        Member, "runs", property(takes_a_deleted_pod_for_gone), 31, "gives its quota back while"
    ),
    "a pod that comes after the release": Mistake(
        GroupController, "release", releases_once, 3, "is not let go"
    ),
    "a group without pods": Mistake(
        Groups, "leave", keeps_an_empty_group, 1, "holds quota, and has no pods"
    ),
}
"""By what is handled wrongly."""


if __name__ == "__main__":
    search(MISTAKES, "kinds", sys.argv[1:])
