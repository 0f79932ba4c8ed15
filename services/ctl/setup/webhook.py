"""Webhook configurations: the API server asks the classifier about jobs, and about objects of our kinds."""

import base64
from typing import Any, Final

from services.ctl.setup.match_conditions import (
    CHANGES_ADMISSION,
    CHANGES_GATE,
    CHANGES_RULES,
    CHANGES_SPEC,
    CHANGES_TEMPLATE,
    COSCHEDULED_BY_CLAIM,
    NOT_OUR_STATUS,
)
from services.whatif.manifests import Manifest
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import MUTATING_WEBHOOK, VALIDATING_WEBHOOK, Kind
from shared.contracts.kube.names import (
    CLASSIFIER_WEBHOOK,
    MANAGED_LABEL,
    PODS_WEBHOOK,
    QUEUE,
)
from shared.contracts.webhook import KEPT_IN_USE, KIND_UPDATES
from shared.integrations import INTEGRATIONS, WHERE_SERVED

TIMEOUT_SECONDS: Final = 5

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


def pods_manifest(*, url: str, authority: bytes) -> Manifest:
    """The configuration for pods, where they wait. It selects by label: no other pod depends on it."""
    has_queue = {"matchExpressions": [{"key": QUEUE, "operator": "Exists"}]}
    obj: Body = {
        "apiVersion": MUTATING_WEBHOOK.api_version,
        "kind": MUTATING_WEBHOOK.kind,
        "metadata": {"name": PODS_WEBHOOK},
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
                        "operations": operations,
                        "resources": [kind.plural],
                    }
                    for kind in shown
                ],
                **only,
            }
            for name, shown, operations, only in (
                (
                    "pods.classifier.sluicegate.dev",
                    (kinds.POD,),
                    ["CREATE"],
                    {"objectSelector": has_queue},
                ),
                (
                    "templates.pods.classifier.sluicegate.dev",
                    (kinds.DEPLOYMENT, kinds.STATEFUL_SET, kinds.LEADER_WORKER_SET),
                    ["CREATE", "UPDATE"],
                    {"objectSelector": has_queue, "matchConditions": [CHANGES_TEMPLATE]},
                ),
                (
                    "updates.pods.classifier.sluicegate.dev",
                    (kinds.POD,),
                    ["UPDATE"],
                    {
                        "objectSelector": {"matchLabels": {MANAGED_LABEL: "true"}},
                        "matchConditions": [CHANGES_GATE],
                    },
                ),
            )
        ],
    }
    return Manifest(source="the webhook configuration of pods", kind=MUTATING_WEBHOOK, object=obj)


def webhook_manifest(*, url: str, authority: bytes) -> Manifest:
    """The configuration for a classifier at `url`; `authority` is its CA as PEM.

    Fails closed: a job that was not classified would run without quota. Only the finalizers of queues and
    flavors may be missing.
    """
    jobs = [integration.kind for integration in INTEGRATIONS]
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
                        "operations": [operation],
                        "resources": [kind.plural],
                    }
                    for kind in shown
                ],
                **only,
            }
            for name, operation, shown, only in (
                ("classifier.sluicegate.dev", "CREATE", jobs, {}),
                (
                    "tasks.classifier.sluicegate.dev",
                    "CREATE",
                    [kinds.TASK_RUN],
                    {"matchConditions": [COSCHEDULED_BY_CLAIM]},
                ),
                (
                    "updates.classifier.sluicegate.dev",
                    "UPDATE",
                    [kind for kind in jobs if kind not in WHERE_SERVED],
                    {"matchConditions": [CHANGES_ADMISSION]},
                ),
                (
                    KIND_UPDATES,
                    "UPDATE",
                    [kind for kind in jobs if kind in WHERE_SERVED],
                    {"matchConditions": [CHANGES_SPEC]},
                ),
                (
                    "finalizers.classifier.sluicegate.dev",
                    "CREATE",
                    KEPT_IN_USE,
                    {"failurePolicy": "Ignore"},
                ),
            )
        ],
    }
    return Manifest(source="the webhook configuration", kind=MUTATING_WEBHOOK, object=obj)


def validating_manifest(*, url: str, authority: bytes, statuses: bool = True) -> Manifest:
    """The configuration for a classifier that validates at `url`.

    `statuses`: also what others write in the status of a Workload.
    """
    hooks: list[tuple[str, list[Kind], str, dict[str, Any]]] = [
        ("validation.sluicegate.dev", [kind for kind in VALIDATED if kind != kinds.JOB], "", {}),
        (
            "jobs.validation.sluicegate.dev",
            [kinds.JOB],
            "",
            {"matchConditions": [CHANGES_RULES]},
        ),
    ]
    if statuses:
        ours: dict[str, Any] = {"matchConditions": [NOT_OUR_STATUS]}
        hooks.append(("statuses.validation.sluicegate.dev", [kinds.WORKLOAD], "/status", ours))
    obj: Body = {
        "apiVersion": VALIDATING_WEBHOOK.api_version,
        "kind": VALIDATING_WEBHOOK.kind,
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
                        "operations": ["CREATE", "UPDATE"],
                        "resources": [f"{kind.plural}{subresource}"],
                    }
                    for kind in shown
                ],
                **only,
            }
            for name, shown, subresource, only in hooks
        ],
    }
    return Manifest(
        source="the validating webhook configuration", kind=VALIDATING_WEBHOOK, object=obj
    )
