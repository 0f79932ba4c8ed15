"""The TaskRuns of a PipelineRun and their order, computed from the object alone."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.simulator.cluster.kinds.registry import Obj
from shared.contracts.multi_platform import PLATFORM_PARAMETER

PLATFORMS: Final = "build-platforms"
NAME_MAX: Final = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """One TaskRun to create."""

    name: str
    """Name of the TaskRun."""

    task: str
    """Name of the pipeline task; the TaskRuns of a matrix share it."""

    platform: str | None
    """Platform of the machine that it needs; None for a task that needs only a pod."""

    params: tuple[Obj, ...]
    after: tuple[str, ...]
    """Pipeline tasks that must have succeeded before."""

    workspaces: tuple[Obj, ...] = ()
    """Workspaces of the run that it uses, as the pipeline task declares them."""

    finally_: bool = False
    spec: Obj | None = None
    ref: Obj | None = None


def child_name(parent: str, suffix: str) -> str:
    """Join to a name that is short enough for a label: a long one is cut and gets a digest."""
    name = parent + suffix
    if len(name) <= NAME_MAX:
        return name
    digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
    return name[: NAME_MAX - len(digest)] + digest


def plan(run: Obj, pipeline: Obj | None = None) -> list[PlannedTask]:
    """Return all TaskRuns of a run, those of ``finally`` last.

    `pipeline` is the spec of the Pipeline that the run refers to, where the cluster has it. A
    pipeline outside the cluster (in a bundle or a repository) counts as one task, or as one for
    each platform in the run's ``build-platforms``.
    """
    name, spec = run["metadata"]["name"], run["spec"]
    seen = spec.get("pipelineSpec") or pipeline or {}
    tasks: list[PlannedTask] = []
    values = {str(param.get("name")): param.get("value") for param in spec.get("params") or ()}
    for task in seen.get("tasks") or ():
        tasks += _expanded(name, task, values, finally_=False)
    platforms = values.get(PLATFORMS)
    if isinstance(platforms, list) and not any(task.platform for task in tasks):
        for index, platform in enumerate(platforms):
            tasks.append(
                PlannedTask(
                    name=child_name(name, f"-build-images-{index}"),
                    task="build-images",
                    platform=str(platform),
                    params=({"name": PLATFORM_PARAMETER, "value": str(platform)},),
                    after=(),
                )
            )
    if not tasks:
        only = PlannedTask(
            name=child_name(name, "-run"), task="run", platform=None, params=(), after=()
        )
        tasks.append(only)
    for task in seen.get("finally") or ():
        tasks += _expanded(name, task, values, finally_=True)
    return tasks


def _expanded(run: str, task: Obj, values: dict[str, Any], *, finally_: bool) -> list[PlannedTask]:
    """Return the TaskRuns of a pipeline task: one, or one for each platform of its matrix."""
    task_name = str(task.get("name", "task"))
    params = [param for param in task.get("params") or () if isinstance(param, dict)]
    platforms: list[str | None] = [None]
    for param in params:
        if param.get("name") == PLATFORM_PARAMETER and isinstance(param.get("value"), str):
            platforms = [_substituted(param["value"], values)]
    matrix = task.get("matrix")
    for param in (matrix.get("params") or ()) if isinstance(matrix, dict) else ():
        if param.get("name") == PLATFORM_PARAMETER:
            listed = param.get("value")
            if isinstance(listed, str):
                listed = values.get(listed.removeprefix("$(params.").removesuffix("[*])"))
            platforms = list(map(str, listed)) if isinstance(listed, list) else [None]
    others = tuple(param for param in params if param.get("name") != PLATFORM_PARAMETER)
    several = len(platforms) > 1
    return [
        PlannedTask(
            name=child_name(run, f"-{task_name}-{index}" if several else f"-{task_name}"),
            task=task_name,
            platform=platform,
            params=(
                *others,
                *(({"name": PLATFORM_PARAMETER, "value": platform},) if platform else ()),
            ),
            after=tuple(task.get("runAfter") or ()),
            workspaces=tuple(task.get("workspaces") or ()),
            finally_=finally_,
            spec=task.get("taskSpec"),
            ref=task.get("taskRef"),
        )
        for index, platform in enumerate(platforms)
    ]


def _substituted(text: str, values: dict[str, Any]) -> str:
    for name, value in values.items():
        if isinstance(value, str):
            text = text.replace(f"$(params.{name})", value)
    return text


def depth(tasks: Sequence[PlannedTask]) -> int:
    """Return the number of TaskRuns on the longest path through the plan."""
    level: dict[str, int] = {}
    # Each round assigns a depth to tasks whose predecessors have one; a cycle ends the loop.
    ordinary = [task for task in tasks if not task.finally_]
    names = {task.task for task in ordinary}
    for _ in range(len(ordinary)):
        for task in ordinary:
            before = [name for name in task.after if name in names]
            if task.task not in level and all(name in level for name in before):
                level[task.task] = 1 + max((level[name] for name in before), default=0)
    last = 1 if any(task.finally_ for task in tasks) else 0
    return max(level.values(), default=1) + last
