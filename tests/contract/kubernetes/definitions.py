"""The smallest definitions of the custom kinds that the suite uses on a real API server."""

from shared.contracts.kube.kinds import (
    CLUSTER_QUEUE,
    PIPELINE_RUN,
    RESOURCE_FLAVOR,
    WORKLOAD,
    Kind,
    Object,
)

CUSTOM_RESOURCE_DEFINITION = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
)

LATECOMER = Kind(group="example.test", version="v1", plural="latecomers", kind="Latecomer")
"""A kind that nobody serves until its definition is installed."""

INSTALLED = (WORKLOAD, CLUSTER_QUEUE, RESOURCE_FLAVOR, PIPELINE_RUN)


def definition(kind: Kind) -> Object:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "metadata": {
            "name": f"{kind.plural}.{kind.group}",
            # Groups below k8s.io are refused without it.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "plural": kind.plural,
                "singular": kind.kind.lower(),
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
            },
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": anything, "status": anything},
                        }
                    },
                }
            ],
        },
    }
