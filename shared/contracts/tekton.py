"""Names of tektoncd/pipeline v1.11 that several services read or write."""

from typing import Final

MEMBER_LABEL: Final = "tekton.dev/memberOf"
"""On TaskRuns: `tasks` or `finally`."""

TASK_LABEL: Final = "tekton.dev/pipelineTask"
"""On TaskRuns: the name of the pipeline task."""

TASK_RUN_LABEL: Final = "tekton.dev/taskRun"
"""On pods: the name of the TaskRun."""

TEKTON_SLOT: Final = "tekton.dev/pipelineruns"
"""The resource that counts PipelineRuns: each asks for one."""
