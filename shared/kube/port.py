"""The protocol of one Kubernetes cluster: list, watch, get, create, patch, delete.

`shared.kube.client.HttpKube` implements it over HTTP, the simulator's `LocalKube` with a store in the
same process. `tests/contract/kubernetes` tests both, and a real API server.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import Kind

Patch = list[dict[str, Any]] | Mapping[str, Any]
"""A list is a JSON patch (RFC 6902), a mapping a merge patch (RFC 7386)."""


class KubeError(Exception):
    """An error of the API server. The class tells what the caller can do."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message[:1024])  # Bodies may be megabytes, and may hold secrets.
        self.status = status
        """HTTP status; 0 without an answer."""

        self.reason = reason
        """`metav1.Status.reason`."""


class NotFoundError(KubeError):
    """404: the object does not exist (any more)."""


class ConflictError(KubeError):
    """The object has changed: read it and decide again.

    409, a uid that is another one's, or a JSON patch with a `test` that could not be applied: API
    servers do not tell a `test` that failed from an operation without its place.
    """


class AlreadyExistsError(ConflictError):
    """409 AlreadyExists."""


class ExpiredError(KubeError):
    """410: the resource version is too old. List again."""


class RefusedError(KubeError):
    """400, 401, 403, 405, 413, 415, 422, more than etcd takes: the same request never succeeds."""


class ThrottledError(KubeError):
    """429: too many requests."""

    def __init__(self, message: str, *, retry_after_seconds: float) -> None:
        super().__init__(message, status=429, reason="TooManyRequests")
        self.retry_after_seconds = retry_after_seconds


class UnavailableError(KubeError):
    """5xx, a broken connection or a time-out. The server may have carried out the request or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All objects of a kind at one moment."""

    items: list[Body]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEvent:
    """One line of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Body
    """For a BOOKMARK only `metadata.resourceVersion` counts."""


class Kube(Protocol):
    """One cluster. All errors of its methods are `KubeError`s, apart from cancellation."""

    async def served(self) -> frozenset[tuple[str, str, str]]:
        """Return (group, version, plural) of every resource that the server serves."""

    async def list(
        self, kind: Kind, *, namespace: str | None = None, labels: str | None = None
    ) -> Listing:
        """Return all objects of `kind`, with their `apiVersion` and `kind`, page by page but as one.

        `labels` is a label selector. Of Secrets only the metadata can be counted on.
        """

    def watch(
        self,
        kind: Kind,
        *,
        resource_version: str,
        namespace: str | None = None,
        labels: str | None = None,
    ) -> AsyncIterator[WatchEvent]:
        """Yield events after `resource_version`. Raises `ExpiredError` on 410.

        Ends when the server ends it. `labels` as for `list`; an object that no longer matches is DELETED.
        """

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Body:
        """Return the object."""

    async def create(self, kind: Kind, obj: Mapping[str, Any]) -> Body:
        """Create `obj` in the namespace that its metadata names; return it as stored.

        `apiVersion` and `kind` may be missing: `kind` names them.
        """

    async def patch(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        patch: Patch,
        *,
        subresource: str | None = None,
    ) -> Body:
        """Apply `patch`; return the object as stored. Preconditions are `test` operations or a uid."""

    async def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        dependants_first: bool = False,
    ) -> None:
        """Delete it, dependants in the background; with `uid` only if it has that uid.

        `dependants_first`: it stays, terminating, until all objects that it owns are gone.
        """

    async def close(self) -> None:
        """Close the connections."""
