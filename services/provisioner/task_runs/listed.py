"""Which TaskRuns the PipelineRuns of a cluster list as those that they made. Pure.

Anybody can write an owner reference into a TaskRun. What a run made is said by the run: Tekton writes it
into its status, which its user may not change (tektoncd/pipeline@v1.0.0
pkg/apis/pipeline/v1/pipelinerun_types.go, `ChildReferences`).
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from shared.contracts.kube.bodies import Body, annotations_of, maps_at, status_of
from shared.contracts.kube.conditions import SUCCEEDED, has_status
from shared.contracts.kube.kinds import TASK_RUN
from shared.contracts.kube.names import TRUNCATED
from shared.contracts.messages.observed import Observed

LISTING_MAX: Final = timedelta(seconds=30)
"""How long a TaskRun that names an admitted run waits until the run lists it. Tekton writes both within the
same second; a busy one needs some more."""

_NONE: Final[frozenset[str]] = frozenset()


class ListedTaskRuns:
    """The names of the TaskRuns that each PipelineRun made which has not ended."""

    def __init__(self) -> None:
        self._uids: dict[tuple[str, str], str] = {}
        """Namespace and name of a run to its uid."""

        self._names: dict[tuple[str, str], frozenset[str]] = {}
        """Namespace and uid of a run to the names of its TaskRuns."""

        self._missed: dict[str, datetime] = {}
        """Uid of a TaskRun to the time since when it waits for its run to list it."""

    def observe(self, run: Observed) -> str | None:
        """Apply an observed PipelineRun. Returns its uid if it lists others than before."""
        ref, body = (run.namespace or "", run.name), run.body
        before = self._uids.get(ref)
        if run.deleted:
            if before == run.uid:
                del self._uids[ref]
                self._names.pop((ref[0], before), None)
            return None
        if before is not None and before != run.uid:
            self._names.pop((ref[0], before), None)
        self._uids[ref] = run.uid
        if body is None or TRUNCATED in annotations_of(body):
            # What is left of it says nothing of its TaskRuns: those that are known stay.
            return None
        key = (ref[0], run.uid)
        if has_status(body, SUCCEEDED, "True", "False"):
            self._names.pop(key, None)  # It makes none any more.
            return None
        names = frozenset(_listed(body))
        if names == self._names.get(key, _NONE):
            return None
        self._names[key] = names
        return run.uid

    def lists(self, namespace: str, uid: str, task_run: str) -> bool:
        """Whether the run `uid` says that it made the TaskRun of that name."""
        return task_run in self._names.get((namespace, uid), _NONE)

    def may_list(self, task_run: str, now: datetime) -> bool:
        """Whether a TaskRun may be listed soon that is not yet. `task_run`: its uid."""
        return now - self._missed.setdefault(task_run, now) < LISTING_MAX

    def forget(self, task_run: str) -> None:
        """Forget a TaskRun that has ended. `task_run`: its uid."""
        self._missed.pop(task_run, None)


def _listed(run: Body) -> Iterator[str]:
    """The names of the TaskRuns in the status of a PipelineRun, not those of its runs and custom runs."""
    for child in maps_at(run, "status", "childReferences"):
        version, name = child.get("apiVersion"), child.get("name")
        # Tekton before 0.45 could leave the group out.
        group = version.rpartition("/")[0] if isinstance(version, str) else ""
        is_task_run = child.get("kind") == TASK_RUN.kind and group in {"", TASK_RUN.group}
        if is_task_run and isinstance(name, str):
            yield name
    # Tekton before 0.45 wrote them here, by name.
    earlier: Any = status_of(run).get("taskRuns")
    if isinstance(earlier, dict):
        yield from earlier
