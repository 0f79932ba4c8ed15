"""Makes and removes the copies of jobs that a hub sends to this cluster."""

from shared.bus.port import LaterError
from shared.contracts.effects import Dispatch
from shared.integrations import integration_for
from shared.kube.port import (
    AlreadyExistsError,
    ConflictError,
    Kube,
    NotFoundError,
    ThrottledError,
    UnavailableError,
)

__all__ = ["ORIGIN", "Spokes"]

ORIGIN = "kueue.x-k8s.io/multikueue-origin"
"""Label of a copy: where it came from. Only what carries it is ever deleted."""


class Spokes:
    """Carries out dispatches on the cluster of this patcher."""

    def __init__(self, *, kube: Kube) -> None:
        self._kube = kube

    async def apply(self, dispatch: Dispatch) -> None:
        """Create the copy, or delete it once it was withdrawn. May be repeated."""
        if dispatch.job is None:
            return
        api_version = str(dispatch.job.get("apiVersion", ""))
        integration = integration_for(
            group=api_version.rpartition("/")[0], kind=dispatch.job.get("kind")
        )
        if integration is None:
            return
        name = dispatch.job["metadata"]["name"]
        try:
            if dispatch.state == "withdrawn":
                found = await self._kube.get(integration.kind, dispatch.namespace, name)
                if ORIGIN in (found["metadata"].get("labels") or {}):
                    uid = found["metadata"]["uid"]
                    await self._kube.delete(integration.kind, dispatch.namespace, name, uid=uid)
            else:
                await self._kube.create(integration.kind, dispatch.job)
        except (AlreadyExistsError, NotFoundError):
            return
        except ThrottledError as error:
            raise LaterError(str(error), delay_seconds=error.retry_after_seconds) from error
        except (ConflictError, UnavailableError) as error:
            raise LaterError(str(error)) from error
