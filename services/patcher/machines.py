"""Gives a TaskRun what it waits for: the secret that says where its machine is."""

from typing import Final

from shared.bus.port import LaterError
from shared.contracts.effects import HostState
from shared.contracts.kinds import SECRET, TASK_RUN, Object
from shared.kube.port import (
    AlreadyExistsError,
    ConflictError,
    Kube,
    NotFoundError,
    ThrottledError,
    UnavailableError,
)

__all__ = ["Machines", "secret_for"]

PREFIX: Final = "build.appstudio.redhat.com/"


def secret_for(host: HostState) -> Object:
    """The secret by which the build task finds its machine (`research/tekton.md` 2.2)."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": f"multi-platform-ssh-{host.name}",
            "namespace": host.namespace,
            "labels": {f"{PREFIX}multi-platform-secret": "true"},
            "ownerReferences": [
                {
                    "apiVersion": TASK_RUN.api_version,
                    "kind": TASK_RUN.kind,
                    "name": host.name,
                    "uid": host.uid,
                }
            ],
        },
        "stringData": dict(host.secret or {}),
        "type": "Opaque",
    }


class Machines:
    """Carries out what the provisioner says about machines in one cluster."""

    def __init__(self, *, kube: Kube) -> None:
        self._kube = kube

    async def apply(self, host: HostState) -> None:
        """Create the secret, or delete it when the machine was given back. May be repeated."""
        try:
            if host.state == "released":
                await self._delete(host)
            elif host.secret is not None:
                await self._create(host)
        except ThrottledError as error:
            raise LaterError(str(error), delay_seconds=error.retry_after_seconds) from error
        except (ConflictError, UnavailableError) as error:
            raise LaterError(str(error)) from error

    async def _create(self, host: HostState) -> None:
        try:
            await self._kube.create(SECRET, secret_for(host))
        except AlreadyExistsError:
            return  # An earlier attempt of ours, or an error that was already told.
        except NotFoundError:
            return  # The namespace is gone, and the TaskRun with it.

    async def _delete(self, host: HostState) -> None:
        name = f"multi-platform-ssh-{host.name}"
        try:
            await self._kube.delete(SECRET, host.namespace, name)
        except NotFoundError:
            return  # The garbage collector was faster.
