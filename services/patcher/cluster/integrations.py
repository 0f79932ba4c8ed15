"""Writes the status of Integration objects, and keeps the rules of the webhook for their kinds.

The watcher says when something changes; what there is, the API server says.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from services.patcher.cluster.cache import ObjectCache
from services.patcher.cluster.patches import if_unchanged
from services.patcher.cluster.webhook_rules import rules_patch
from shared.contracts.kube.bodies import status_of
from shared.contracts.kube.conditions import ACTIVE, Conditions
from shared.contracts.kube.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    INTEGRATION,
    MUTATING_WEBHOOK,
)
from shared.contracts.kube.names import CLASSIFIER_WEBHOOK
from shared.integrations import Integration, IntegrationError, Integrations, IntegrationState
from shared.integrations.schema import SCHEMA_MISMATCH, mismatch_of
from shared.kube.port import Kube, KubeError, NotFoundError

log = structlog.get_logger(__name__)

RECHECK: Final = timedelta(minutes=10)
"""After so long a document is compared with the schema of its kind again, which may have changed."""

RESYNC_SECONDS: Final = 30.0
"""Interval of the check of the webhook's rules: a deployment may overwrite its configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    """What the schema had against one generation of a document."""

    generation: int
    at: datetime
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrationReconciler:
    """Writes what follows from the Integration objects of one cluster."""

    kube: Kube
    cache: ObjectCache
    now: Callable[[], datetime]
    checked: dict[str, "_Checked"] = field(default_factory=dict)
    """The last comparison of each Integration with the schema of its kind, by name."""

    async def run(self) -> None:
        """Write until cancelled. What fails is tried again after `RESYNC_SECONDS`."""
        changed, integrations = self.cache.integrations_changed, self.cache.integrations
        while True:
            await changed.wait()
            changed.clear()
            while True:
                is_read = await self._read()
                if is_read:
                    for state in integrations.states():
                        await self._write_status(state)
                    await self._update_rules(integrations)
                    if not integrations.states():
                        break
                try:
                    async with asyncio.timeout(RESYNC_SECONDS):
                        await changed.wait()
                except TimeoutError:
                    continue
                changed.clear()

    async def _read(self) -> bool:
        """Keep the Integrations that the API server has; False if it does not say.

        An observed one is only the watcher's word. What is in force decides what the patcher writes into
        jobs, and which kinds the webhook reviews.
        """
        try:
            found = (await self.kube.list(INTEGRATION)).items
        except NotFoundError:
            found = []  # This cluster has no Integration objects.
        except KubeError as error:
            log.warning("cannot read the Integrations of the cluster", error=str(error))
            return False
        self.cache.integrations.replace_all(found)
        return True

    async def _write_status(self, state: IntegrationState) -> None:
        mismatch = await self._mismatch(state)
        status = integration_status(state, now=self.now(), mismatch=mismatch)
        if status is None:
            return
        metadata = state.obj["metadata"]
        patch = {"metadata": {"uid": metadata["uid"]}, "status": status}
        try:
            await self.kube.patch(INTEGRATION, None, metadata["name"], patch, subresource="status")
        except NotFoundError:
            return
        except KubeError as error:
            log.warning(
                "cannot write the status of an Integration",
                integration=metadata["name"],
                error=str(error),
            )
            return
        if problem := mismatch or state.problem:
            log.warning("an Integration is refused", integration=metadata["name"], reason=problem)

    async def _mismatch(self, state: IntegrationState) -> str | None:
        """Why a document contradicts the schema of its kind; None: it does not, or there is no schema."""
        if state.problem is not None and mismatch_of(state.obj) is None:
            return None
        metadata, now = state.obj["metadata"], self.now()
        generation = int(metadata.get("generation", 1))
        last = self.checked.get(metadata["name"])
        if last is not None and last.generation == generation and now - last.at < RECHECK:
            return last.problem
        problem = mismatch_of(state.obj)
        try:
            integration = Integration.load(state.obj)
            kind = integration.kind
            name = f"{kind.plural}.{kind.group}"
            integration.check_schema(await self.kube.get(CUSTOM_RESOURCE_DEFINITION, None, name))
            problem = None
        except IntegrationError as error:
            problem = str(error)
        except NotFoundError:
            return None  # Built into the API server, or not defined yet.
        except KubeError as error:
            log.warning(
                "cannot read the schema of an Integration's kind",
                integration=metadata["name"],
                error=str(error),
            )
        self.checked[metadata["name"]] = _Checked(generation=generation, at=now, problem=problem)
        return problem

    async def _update_rules(self, integrations: Integrations) -> None:
        """Give each kind its rules of the webhook, and remove those that kinds had which are gone."""
        try:
            configuration = await self.kube.get(MUTATING_WEBHOOK, None, CLASSIFIER_WEBHOOK)
            patch = rules_patch(configuration, integrations.reviewed_kinds())
            if patch:
                patch = if_unchanged(configuration, *patch)
                await self.kube.patch(MUTATING_WEBHOOK, None, CLASSIFIER_WEBHOOK, patch)
        except NotFoundError:
            return  # Without a webhook, jobs are suspended once they are observed.
        except KubeError as error:
            log.warning("cannot write the rules of the webhook", error=str(error))


def integration_status(
    state: IntegrationState, *, now: datetime, mismatch: str | None = None
) -> dict[str, Any] | None:
    """The status that an Integration object must have; None if it has it already.

    `mismatch`: what the schema of its kind has against it.
    """
    conditions = Conditions.of(state.obj, at=now)
    problem = state.problem
    if mismatch is not None:
        problem = mismatch
        conditions.set(ACTIVE, False, SCHEMA_MISMATCH, mismatch)
    elif problem is None or mismatch_of(state.obj) is not None:
        problem = None
        conditions.set(ACTIVE, True, "InForce", "The document is in force")
    else:
        earlier = "; the one before is in force" if state.in_force is not None else ""
        conditions.set(ACTIVE, False, "Refused", problem + earlier)
    status: dict[str, Any] = {"conditions": conditions.items}
    if problem is None:
        status["accepted"] = state.obj["spec"]
    current = status_of(state.obj)
    return None if all(current.get(key) == value for key, value in status.items()) else status
