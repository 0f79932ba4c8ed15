"""Tells an API server to ask our classifier before it creates what can wait."""

import base64
from typing import Final

from services.ctl.manifests import MUTATING_WEBHOOK, Manifest
from shared.contracts.integrations import INTEGRATIONS
from shared.contracts.kinds import Object

__all__ = ["NAME", "webhook_manifest"]

NAME: Final = "sluicegate-classifier"
"""Tekton's own webhook sorts after it, so its defaults see what we set."""

TIMEOUT_SECONDS: Final = 5


def webhook_manifest(*, url: str, authority: bytes) -> Manifest:
    """The configuration for a classifier at `url`; `authority` is its CA as PEM.

    Fails closed: what could not be classified would run without quota.
    """
    obj: Object = {
        "apiVersion": MUTATING_WEBHOOK.api_version,
        "kind": MUTATING_WEBHOOK.kind,
        "metadata": {"name": NAME},
        "webhooks": [
            {
                "name": "classifier.sluicegate.dev",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "timeoutSeconds": TIMEOUT_SECONDS,
                "clientConfig": {"url": url, "caBundle": base64.b64encode(authority).decode()},
                "rules": [
                    {
                        "apiGroups": [integration.kind.group],
                        "apiVersions": [integration.kind.version],
                        "operations": ["CREATE"],
                        "resources": [integration.kind.plural],
                    }
                    for integration in INTEGRATIONS
                ],
            }
        ],
    }
    return Manifest(source="the webhook configuration", kind=MUTATING_WEBHOOK, object=obj)
