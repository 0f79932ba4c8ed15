"""The paths at which the classifier's webhook answers an API server, and whom it trusts."""

from typing import Final

from shared.contracts.kube.kinds import CLUSTER_QUEUE, RESOURCE_FLAVOR

PATCHER_USER: Final = "system:serviceaccount:sluicegate:patcher"
"""Name of the user that starts and stops jobs in a cluster with our manifests."""

FIELD_MANAGER: Final = "sluicegate"
"""Field manager of our writes. It says who wrote a field; anybody may name it, so it proves nothing."""

KEPT_IN_USE: Final = (CLUSTER_QUEUE, RESOURCE_FLAVOR)
"""Kinds that get their finalizer as they are created, as with Kueue. Where the webhook did not answer, the
patcher adds it."""

MUTATE_PATH: Final = "/mutate"
"""Mutation of every kind that can be held."""

PIPELINE_RUN_PATH: Final = "/mutate-tekton-dev-v1-pipelinerun"
"""Mutation of PipelineRuns: the path in tekton-kueue's webhook configuration."""

JOB_PATH: Final = "/mutate-batch-v1-job"
VALIDATE_PATH: Final = "/validate"
CONVERT_PATH: Final = "/convert"

CREATIONS: Final = "classifier.sluicegate.dev"
"""The webhook that reviews jobs as they are created."""

UPDATES: Final = f"updates.{CREATIONS}"
"""The webhook that reviews changes of jobs."""

KIND_UPDATES: Final = f"kinds.{UPDATES}"
"""The webhook that reviews changes of kinds of which only their Integrations know where they are held."""
