"""Says on each Integration object what came of it, and has the webhook asked about its kind."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import structlog

from services.patcher.cluster.cache import Mirror
from shared.contracts.kube.conditions import Conditions
from shared.contracts.kube.kinds import INTEGRATION, Kind, Object
from shared.integrations import Integrations, Standing
from shared.kube.port import Kube, KubeError, NotFoundError

__all__ = ["MUTATING_WEBHOOK", "WEBHOOK", "IntegrationKeeper", "missing_rules", "status_of"]

log = structlog.get_logger(__name__)

MUTATING_WEBHOOK: Final = Kind(
    group="admissionregistration.k8s.io",
    version="v1",
    plural="mutatingwebhookconfigurations",
    kind="MutatingWebhookConfiguration",
    namespaced=False,
)
CONFIGURATION: Final = "sluicegate-classifier"
WEBHOOK: Final = "classifier.sluicegate.dev"
"""The webhook of that configuration that is asked about what can wait."""

AGAIN_SECONDS: Final = 30.0
"""How often it is looked whether the webhook knows the kinds: its configuration may be written anew."""


class IntegrationKeeper:
    """The side of Integration objects that is written."""

    def __init__(self, *, kube: Kube, mirror: Mirror, now: Callable[[], datetime]) -> None:
        self._kube = kube
        self._mirror = mirror
        self._now = now

    async def run(self) -> None:
        """Write until cancelled. What does not succeed is tried again."""
        while True:
            await self._mirror.integrations_changed.wait()
            self._mirror.integrations_changed.clear()
            integrations = self._mirror.integrations
            while True:
                for standing in integrations.standings():
                    await self._say(standing)
                if not integrations.brought():
                    break
                await self._ask_about(integrations)
                try:
                    async with asyncio.timeout(AGAIN_SECONDS):
                        await self._mirror.integrations_changed.wait()
                except TimeoutError:
                    continue
                self._mirror.integrations_changed.clear()

    async def _say(self, standing: Standing) -> None:
        status = status_of(standing, now=self._now())
        if status is None:
            return
        metadata = standing.obj["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
        try:
            await self._kube.patch(INTEGRATION, None, metadata["name"], patch, subresource="status")
        except NotFoundError:
            return
        except KubeError as error:
            log.warning("status_not_written", integration=metadata["name"], error=str(error))
            return
        if standing.problem is not None:
            log.warning(
                "integration_refused", integration=metadata["name"], reason=standing.problem
            )

    async def _ask_about(self, integrations: Integrations) -> None:
        """Add what is missing to the rules of the webhook. Rules are never taken away."""
        try:
            configuration = await self._kube.get(MUTATING_WEBHOOK, None, CONFIGURATION)
            patch = missing_rules(configuration, integrations.brought())
            if patch:
                await self._kube.patch(MUTATING_WEBHOOK, None, CONFIGURATION, patch)
        except NotFoundError:
            return  # No webhook: what is created is held back once it is seen.
        except KubeError as error:
            log.warning("webhook_not_extended", error=str(error))


def status_of(standing: Standing, *, now: datetime) -> Object | None:
    """What the status of an Integration object must say; None if it says it."""
    conditions = Conditions.of(standing.obj, at=now)
    problem = standing.problem
    if problem is None:
        conditions.set("Active", True, "InForce", "The document is in force")
    else:
        before = "; the one before is in force" if standing.in_force is not None else ""
        conditions.set("Active", False, "Refused", problem + before)
    status: dict[str, Any] = {"conditions": conditions.items}
    if problem is None:
        status["accepted"] = standing.obj["spec"]
    there = standing.obj.get("status") or {}
    return None if all(there.get(key) == value for key, value in status.items()) else status


def missing_rules(configuration: Object, wanted: tuple[Kind, ...]) -> list[Object]:
    """JSON patch that has the webhook asked about these kinds too; empty if it is."""
    for place, webhook in enumerate(configuration.get("webhooks") or []):
        if webhook.get("name") != WEBHOOK:
            continue
        asked = {
            (group, version, resource)
            for rule in webhook.get("rules") or []
            for group in rule.get("apiGroups") or []
            for version in rule.get("apiVersions") or []
            for resource in rule.get("resources") or []
        }
        rules: list[Object] = [
            {
                "op": "add",
                "path": f"/webhooks/{place}/rules/-",
                "value": {
                    "apiGroups": [kind.group],
                    "apiVersions": [kind.version],
                    "operations": ["CREATE"],
                    "resources": [kind.plural],
                },
            }
            for kind in wanted
            if (kind.group, kind.version, kind.plural) not in asked
        ]
        test = {"op": "test", "path": f"/webhooks/{place}/name", "value": WEBHOOK}
        return [test, *rules] if rules else []
    return []
