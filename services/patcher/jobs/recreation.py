"""A job that cannot be suspended gives way to a copy of itself, which waits in its place.

The copy is created first, waiting, and the running one is ended then: a crash in between leaves both
and is gone over again. What waits never runs beside what it is a copy of, since that holds its quota
until it has ended. Its name follows from the one that is stopped, so it is made once.
"""

import hashlib
from typing import Final

import structlog

from services.patcher.cluster.events import Events
from services.patcher.cluster.writer import Writer
from shared.contracts.kube import names
from shared.contracts.kube.kinds import Object
from shared.integrations import Integration
from shared.integrations.pointers import pointer, tokens, written
from shared.kube.port import NotFoundError, Patch, RefusedError

__all__ = ["NAME_MAX", "Recreation", "copy_of", "end_patch"]

log = structlog.get_logger(__name__)

NAME_MAX: Final = 63
"""Controllers put names of jobs into labels."""

_HASH_LENGTH: Final = 5
_OURS: Final = "sluicegate.dev/"
_KEPT: Final = (names.COSCHEDULE, names.REQUESTS_APPLIED)
"""Annotations of ours that say what is wanted, and not what became of the one that is stopped."""

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_AS: Final = pointer(("metadata", "annotations", names.RECREATED_AS))


def copy_of(job: Object, integration: Integration) -> Object:
    """The object to create: labels, annotations, owners and spec of `job`, held, and where it is from."""
    metadata = job["metadata"]
    annotations = metadata.get("annotations") or {}
    first = str(annotations.get(names.RECREATED_FIRST) or metadata["name"])
    number = _number(annotations.get(names.RECREATIONS)) + 1
    forgotten = (_OURS, _LAST_APPLIED, *integration.forget)
    copy: Object = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "metadata": {
            "name": _name(first, number, metadata["uid"]),
            "namespace": metadata["namespace"],
            "labels": {
                key: value
                for key, value in (metadata.get("labels") or {}).items()
                if not key.startswith(integration.forget)
            },
            "annotations": {
                **{
                    key: value
                    for key, value in annotations.items()
                    if key in _KEPT or not key.startswith(forgotten)
                },
                # It comes held, and not because its user paused it.
                names.USER_PENDING: "false",
                names.RECREATED_FROM: _source(job),
                names.RECREATED_FIRST: first,
                names.RECREATIONS: str(number),
            },
        },
        "spec": job["spec"],
    }
    if owners := metadata.get("ownerReferences"):
        copy["metadata"]["ownerReferences"] = owners
    for operation in integration.hold(job):
        if operation["op"] != "test":
            copy = written(copy, tokens(operation["path"]), operation["value"])
    return copy


def end_patch(job: Object, integration: Integration, copy: str = "") -> list[Object] | None:
    """Patch that ends `job` and says which `copy` waits in its place. None: it is so, or has ended."""
    operations = integration.end(job)
    if operations is None or integration.finish(job) is not None:
        return None
    after = job
    if copy:
        noted = (job["metadata"].get("annotations") or {}) | {names.RECREATED_AS: copy}
        # An annotation cannot be added by itself where there are none.
        there = job["metadata"].get("annotations") is not None
        operations = [
            *operations,
            {"op": "add", "path": _AS, "value": copy}
            if there
            else {"op": "add", "path": "/metadata/annotations", "value": noted},
        ]
    for operation in operations:
        if operation["op"] != "test":
            after = written(after, tokens(operation["path"]), operation["value"])
    return None if after == job else operations


def _source(job: Object) -> str:
    metadata = job["metadata"]
    return f"{metadata['name']}/{metadata['uid']}"


def _number(text: object) -> int:
    """How many were stopped before; a note that somebody has spoilt counts as none."""
    digits = str(text or "0")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < NAME_MAX else 0


def _name(first: str, number: int, uid: str) -> str:
    digest = hashlib.sha256(uid.encode()).hexdigest()[:_HASH_LENGTH]
    tail = f"-r{number % 10_000}-{digest}"
    return first[: NAME_MAX - len(tail)].rstrip("-.") + tail


class Recreation:
    """Ends jobs of one cluster, with a copy in their place or without."""

    def __init__(self, *, writer: Writer, events: Events) -> None:
        self._writer = writer
        self._events = events

    async def end(
        self, job: Object, integration: Integration, *, why: str, anew: bool
    ) -> Object | None:
        """End `job`; with `anew` a copy waits in its place. The job as it then is.

        None: it ended by itself meanwhile, or is gone, and nothing is left to do. Raises what the
        cluster refuses.
        """
        kind = integration.kind
        copy: Object | None = None
        if anew:
            wanted = copy_of(job, integration)
            copy, new = await self._writer.create(kind, wanted)
            noted = copy["metadata"].get("annotations") or {}
            if noted.get(names.RECREATED_FROM) != _source(job):
                log.error("a name is taken", kind=kind.kind, name=copy["metadata"]["name"])
                raise RefusedError(
                    f"{kind.kind} {copy['metadata']['name']} is there and is no copy of this one",
                    status=409,
                    reason="AlreadyExists",
                )
            if new:
                text = f"Waits in the place of {job['metadata']['name']}: {why}"
                self._events.say(kind, copy, "Recreated", text)
        name = copy["metadata"]["name"] if copy is not None else ""

        def patch(current: Object) -> Patch | None:
            return end_patch(current, integration, name)

        try:
            after = await self._writer.patch(kind, job, patch)
        except NotFoundError:
            await self._take_back(copy, integration)
            return None
        except RefusedError:
            # What is done takes no changes: then its work is done, and nobody has to do it again.
            fresh = await self._writer.get(
                kind, job["metadata"]["namespace"], job["metadata"]["name"]
            )
            if fresh is not None and integration.finish(fresh) is None:
                raise
            await self._take_back(copy, integration)
            return None
        if integration.finish(after) is not None and not _says(after, name):
            await self._take_back(copy, integration)
            return None
        if after is not job:
            then = f"; {name} waits in its place" if name else ""
            self._events.say(kind, after, "Stopped", f"{why}{then}")
        return after

    async def _take_back(self, copy: Object | None, integration: Integration) -> None:
        """What it is a copy of ended by itself: delete it, unless somebody has let it run."""
        if copy is not None and integration.held(copy):
            await self._writer.delete(integration.kind, copy)


def _says(job: Object, copy: str) -> bool:
    return (job["metadata"].get("annotations") or {}).get(names.RECREATED_AS) == copy
