"""Queues of PipelineRuns for the tests of document 000."""

from shared.contracts.kube.kinds import Object

SLOT = "tekton.dev/pipelineruns"


QUEUE = "pipelines-queue"


TENANT = "my-team-tenant"


def of_size(manifests: list[Object], slots: int) -> list[Object]:
    """The document's queue with fewer slots than 200, so that a test is short."""
    for obj in manifests:
        if obj["kind"] == "ClusterQueue":
            [group] = obj["spec"]["resourceGroups"]
            group["flavors"][0]["resources"][0]["nominalQuota"] = slots
    return manifests
