"""Webhook configurations: the API server asks the classifier about jobs, and about objects of our kinds."""

import base64
from typing import Final

from services.whatif.manifests import Manifest
from shared.contracts.coscheduling import PLACEHOLDER_PER_CLAIM, PLACEHOLDERS_ANNOTATION
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import MUTATING_WEBHOOK, VALIDATING_WEBHOOK
from shared.contracts.kube.names import CLASSIFIER_WEBHOOK
from shared.integrations import INTEGRATIONS

TIMEOUT_SECONDS: Final = 5

COSCHEDULED_BY_CLAIM: Final = {
    "name": "coscheduled-by-claim",
    "expression": (
        f"'annotations' in object.metadata && '{PLACEHOLDERS_ANNOTATION}' in object.metadata.annotations "
        f"&& object.metadata.annotations['{PLACEHOLDERS_ANNOTATION}'] == '{PLACEHOLDER_PER_CLAIM}'"
    ),
}
"""Of all TaskRuns, only those with a placeholder for their claim are sent to the webhook."""

VALIDATED: Final = (
    kinds.RESOURCE_FLAVOR,
    kinds.CLUSTER_QUEUE,
    kinds.LOCAL_QUEUE,
    kinds.COHORT,
    kinds.WORKLOAD,
    kinds.ADMISSION_CHECK,
    kinds.MULTIKUEUE_CONFIG,
    kinds.MULTIKUEUE_CLUSTER,
    kinds.TOPOLOGY,
    kinds.JOB,
)
"""Kinds with rules beyond their schema."""


def webhook_manifest(*, url: str, authority: bytes) -> Manifest:
    """The configuration for a classifier at `url`; `authority` is its CA as PEM.

    Fails closed: a job that was not classified would run without quota.
    """
    obj: Body = {
        "apiVersion": MUTATING_WEBHOOK.api_version,
        "kind": MUTATING_WEBHOOK.kind,
        "metadata": {"name": CLASSIFIER_WEBHOOK},
        "webhooks": [
            {
                "name": name,
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "timeoutSeconds": TIMEOUT_SECONDS,
                "clientConfig": {"url": url, "caBundle": base64.b64encode(authority).decode()},
                "rules": [
                    {
                        "apiGroups": [kind.group],
                        "apiVersions": [kind.version],
                        "operations": ["CREATE"],
                        "resources": [kind.plural],
                    }
                    for kind in shown
                ],
                **only,
            }
            for name, shown, only in (
                (
                    "classifier.sluicegate.dev",
                    [integration.kind for integration in INTEGRATIONS],
                    {},
                ),
                (
                    "tasks.classifier.sluicegate.dev",
                    [kinds.TASK_RUN],
                    {"matchConditions": [COSCHEDULED_BY_CLAIM]},
                ),
            )
        ],
    }
    return Manifest(source="the webhook configuration", kind=MUTATING_WEBHOOK, object=obj)


def validating_manifest(*, url: str, authority: bytes) -> Manifest:
    """The configuration for a classifier that validates at `url`.

    Status is left out: a match condition cannot tell our own frequent writes from others, because all
    clients have one name here.
    """
    obj: Body = {
        "apiVersion": VALIDATING_WEBHOOK.api_version,
        "kind": VALIDATING_WEBHOOK.kind,
        "metadata": {"name": CLASSIFIER_WEBHOOK},
        "webhooks": [
            {
                "name": "validation.sluicegate.dev",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "timeoutSeconds": TIMEOUT_SECONDS,
                "clientConfig": {"url": url, "caBundle": base64.b64encode(authority).decode()},
                "rules": [
                    {
                        "apiGroups": [kind.group],
                        "apiVersions": [kind.version],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": [kind.plural],
                    }
                    for kind in VALIDATED
                ],
            }
        ],
    }
    return Manifest(
        source="the validating webhook configuration", kind=VALIDATING_WEBHOOK, object=obj
    )
