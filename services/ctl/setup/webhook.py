"""Webhook configurations: the API server asks the classifier about jobs, and about objects of our kinds."""

import base64
from collections.abc import Sequence
from typing import Any, Final

from services.ctl.setup.match_conditions import (
    CHANGES_ADMISSION,
    CHANGES_GATE,
    CHANGES_RULES,
    CHANGES_SPEC,
    CHANGES_TEMPLATE,
    COSCHEDULED_BY_CLAIM,
    NOT_OUR_OWN,
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
from shared.contracts.webhook import CREATIONS, KEPT_IN_USE, KIND_UPDATES, UPDATES
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
    templates = (kinds.DEPLOYMENT, kinds.STATEFUL_SET, kinds.LEADER_WORKER_SET)
    hooks = [
        _hook("pods.classifier.sluicegate.dev", (kinds.POD,), ["CREATE"], objectSelector=has_queue),
        _hook(
            "templates.pods.classifier.sluicegate.dev",
            templates,
            ["CREATE", "UPDATE"],
            objectSelector=has_queue,
            matchConditions=[CHANGES_TEMPLATE],
        ),
        _hook(
            "updates.pods.classifier.sluicegate.dev",
            (kinds.POD,),
            ["UPDATE"],
            objectSelector={"matchLabels": {MANAGED_LABEL: "true"}},
            matchConditions=[CHANGES_GATE],
        ),
    ]
    source = "the webhook configuration of pods"
    return _configuration(source, MUTATING_WEBHOOK, PODS_WEBHOOK, hooks, url, authority)


def webhook_manifest(*, url: str, authority: bytes) -> Manifest:
    """The configuration for a classifier at `url`; `authority` is its CA as PEM.

    Fails closed: a job that was not classified would run without quota. Only the finalizers of queues and
    flavors may be missing.
    """
    jobs = [integration.kind for integration in INTEGRATIONS]
    hooks = [
        _hook(CREATIONS, jobs, ["CREATE"]),
        _hook(
            "tasks.classifier.sluicegate.dev",
            [kinds.TASK_RUN],
            ["CREATE"],
            matchConditions=[COSCHEDULED_BY_CLAIM],
        ),
        _hook(
            UPDATES,
            [kind for kind in jobs if kind not in WHERE_SERVED],
            ["UPDATE"],
            matchConditions=[NOT_OUR_OWN, CHANGES_ADMISSION],
        ),
        _hook(
            KIND_UPDATES,
            [kind for kind in jobs if kind in WHERE_SERVED],
            ["UPDATE"],
            matchConditions=[NOT_OUR_OWN, CHANGES_SPEC],
        ),
        _hook(
            "finalizers.classifier.sluicegate.dev",
            KEPT_IN_USE,
            ["CREATE"],
            failurePolicy="Ignore",
        ),
    ]
    source = "the webhook configuration"
    return _configuration(source, MUTATING_WEBHOOK, CLASSIFIER_WEBHOOK, hooks, url, authority)


def validating_manifest(*, url: str, authority: bytes, statuses: bool = True) -> Manifest:
    """The configuration for a classifier that validates at `url`.

    `statuses`: also what others write in the status of a Workload.
    """
    writes = ["CREATE", "UPDATE"]
    others = [kind for kind in VALIDATED if kind != kinds.JOB]
    hooks = [
        _hook("validation.sluicegate.dev", others, writes, matchConditions=[NOT_OUR_OWN]),
        _hook(
            "jobs.validation.sluicegate.dev",
            [kinds.JOB],
            writes,
            matchConditions=[NOT_OUR_OWN, CHANGES_RULES],
        ),
    ]
    if statuses:
        hooks.append(
            _hook(
                "statuses.validation.sluicegate.dev",
                [kinds.WORKLOAD],
                writes,
                subresource="/status",
                matchConditions=[NOT_OUR_STATUS],
            )
        )
    source = "the validating webhook configuration"
    return _configuration(source, VALIDATING_WEBHOOK, CLASSIFIER_WEBHOOK, hooks, url, authority)


def _hook(
    name: str,
    asked_about: Sequence[Kind],
    operations: list[str],
    *,
    subresource: str = "",
    **fields: Any,
) -> dict[str, Any]:
    """One webhook of a configuration; `fields` as in `MutatingWebhook`."""
    rules = [
        {
            "apiGroups": [kind.group],
            "apiVersions": [kind.version],
            "operations": operations,
            "resources": [f"{kind.plural}{subresource}"],
        }
        for kind in asked_about
    ]
    return {"name": name, "rules": rules, **fields}


def _configuration(
    source: str,
    kind: Kind,
    name: str,
    hooks: list[dict[str, Any]],
    url: str,
    authority: bytes,
) -> Manifest:
    bundle = base64.b64encode(authority).decode()
    obj: Body = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name},
        "webhooks": [
            {
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "timeoutSeconds": TIMEOUT_SECONDS,
                "clientConfig": {"url": url, "caBundle": bundle},
                **hook,
            }
            for hook in hooks
        ],
    }
    return Manifest(source=source, kind=kind, object=obj)
