"""Creates the Integration objects of frameworks that are in force only where the configuration lists them.

Every process follows Integration objects: none of them has to read that list besides.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog

from shared.contracts.kube.kinds import INTEGRATION
from shared.integrations import opted_documents
from shared.kube.port import AlreadyExistsError, Kube, KubeError

log = structlog.get_logger(__name__)

RETRY_SECONDS: Final = 30.0


class OptedIntegrations:
    """The Integration objects of one cluster that its configuration asks for."""

    def __init__(self, *, kube: Kube, frameworks: Iterable[str]) -> None:
        self._kube = kube
        self._missing = list(opted_documents(frameworks))

    async def run(self) -> None:
        """Create what is missing, then return. What is there stays as it is: its user may have changed it."""
        while self._missing:
            obj = self._missing[0]
            try:
                await self._kube.create(INTEGRATION, obj)
            except AlreadyExistsError:
                pass
            except KubeError as error:
                name = obj["metadata"]["name"]
                log.error(
                    "cannot create an Integration; trying again", integration=name, error=str(error)
                )
                await asyncio.sleep(RETRY_SECONDS)
                continue
            del self._missing[0]
