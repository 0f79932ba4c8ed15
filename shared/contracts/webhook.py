"""The paths at which the classifier's webhook answers an API server."""

from typing import Final

MUTATE_PATH: Final = "/mutate"
"""Mutation of every kind that can be held."""

PIPELINE_RUN_PATH: Final = "/mutate-tekton-dev-v1-pipelinerun"
"""Mutation of PipelineRuns: the path in tekton-kueue's webhook configuration."""

JOB_PATH: Final = "/mutate-batch-v1-job"
VALIDATE_PATH: Final = "/validate"
CONVERT_PATH: Final = "/convert"
