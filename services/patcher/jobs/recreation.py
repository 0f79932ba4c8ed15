"""Ends a job that cannot be suspended, and creates a copy of it that waits for quota again.

1. The copy is created, suspended. Its name follows from the ended job, so it is created only once.
2. The running job is ended. A crash before this step leaves both jobs, and the steps are repeated.
3. The copy starts only after the job has ended, because the job holds the quota until then.

A job may end by itself between steps 1 and 2 while no patcher runs. Step 2 is not repeated then, so
whoever starts the copy looks first whether the job was ended for it.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

import structlog

from services.patcher.cluster.events import EventRecorder
from services.patcher.cluster.patches import JsonPatch
from services.patcher.cluster.writer import Writer
from shared.bus.port import LaterError
from shared.contracts.kube import names
from shared.contracts.kube.bodies import Body, annotations_of
from shared.integrations import Integration
from shared.integrations.pointers import pointer, tokens, written
from shared.kube.port import NotFoundError, Patch, RefusedError

log = structlog.get_logger(__name__)

NAME_MAX: Final = 63
"""Length of a label value: controllers put names of jobs into labels."""

_HASH_LENGTH: Final = 5
_OUR_PREFIX: Final = "sluicegate.dev/"
_COPIED: Final = (names.COSCHEDULE, names.REQUESTS_APPLIED)
"""Our annotations that say what the user wants. The others describe the ended job."""

_RECREATED_AS_PATH: Final = pointer(("metadata", "annotations", names.RECREATED_AS))


def copy_of(job: Body, integration: Integration) -> Body:
    """The copy to create: labels, annotations, owners and spec of `job`, suspended, with its origin."""
    metadata = job["metadata"]
    annotations = metadata.get("annotations") or {}
    first = annotations.get(names.RECREATED_FIRST) or metadata["name"]
    number = _recreations(annotations) + 1
    not_copied = (_OUR_PREFIX, names.LAST_APPLIED, *integration.forget)
    copy: Body = {
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
                    if key in _COPIED or not key.startswith(not_copied)
                },
                # Suspended by us, not paused by its user.
                names.USER_PENDING: "false",
                names.RECREATED_FROM: _origin(job),
                names.RECREATED_FIRST: first,
                names.RECREATIONS: str(number),
            },
        },
        "spec": job["spec"],
    }
    if owners := metadata.get("ownerReferences"):
        copy["metadata"]["ownerReferences"] = owners
    return _applied(copy, integration.hold(job))


def end_patch(
    job: Body, integration: Integration, copy: str = "", *, cancel: bool = False
) -> JsonPatch | None:
    """A patch that ends `job` and names its `copy`; None if that is done, or the job has ended."""
    operations: JsonPatch | None = integration.cancel(job) if cancel else integration.end(job)
    if operations is None or integration.finish(job) is not None:
        return None
    if copy:
        annotations = job["metadata"].get("annotations")
        # JSON patch cannot add a key to annotations that do not exist.
        operations = [
            *operations,
            {"op": "add", "path": _RECREATED_AS_PATH, "value": copy}
            if annotations is not None
            else {
                "op": "add",
                "path": "/metadata/annotations",
                "value": {names.RECREATED_AS: copy},
            },
        ]
    return None if _applied(job, operations) == job else operations


def _applied(obj: Body, operations: JsonPatch) -> Body:
    for operation in operations:
        if operation["op"] != "test":
            obj = written(obj, tokens(operation["path"]), operation["value"])
    return obj


def _origin(job: Body) -> str:
    metadata = job["metadata"]
    return f"{metadata['name']}/{metadata['uid']}"


def _recreations(annotations: dict[str, str]) -> int:
    """How many jobs were ended before; 0 if the annotation is absent or not a number."""
    digits = str(annotations.get(names.RECREATIONS) or "0")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < NAME_MAX else 0


def _name(first: str, number: int, uid: str) -> str:
    digest = hashlib.sha256(uid.encode()).hexdigest()[:_HASH_LENGTH]
    tail = f"-r{number % 10_000}-{digest}"
    return first[: NAME_MAX - len(tail)].rstrip("-.") + tail


@dataclass(frozen=True, slots=True, kw_only=True)
class Recreation:
    """Ends jobs of one cluster, with or without a copy."""

    writer: Writer
    events: EventRecorder

    async def end(
        self,
        job: Body,
        integration: Integration,
        *,
        reason: str,
        recreate: bool,
        cancel: bool = False,
    ) -> Body | None:
        """End `job`, with `recreate` after its copy is created. Returns the job as written.

        `cancel` ends it at once: nothing more of it starts.

        Returns None if it ended by itself or is gone: then nothing is left to do. Raises
        `RefusedError`.
        """
        kind = integration.kind
        copy = await self._create_copy(job, integration, reason) if recreate else None
        name = copy["metadata"]["name"] if copy is not None else ""

        def patch(current: Body) -> Patch | None:
            return end_patch(current, integration, name, cancel=cancel)

        try:
            after: Body = await self.writer.patch(kind, job, patch)
        except NotFoundError:
            await self._delete_copy(copy, integration)
            return None
        except RefusedError:
            # Some kinds allow no change after their end. Then no copy is needed either.
            fresh = await self.writer.get(
                kind, job["metadata"]["namespace"], job["metadata"]["name"]
            )
            if fresh is not None and integration.finish(fresh) is None:
                raise
            await self._delete_copy(copy, integration)
            return None
        recreated_as = annotations_of(after).get(names.RECREATED_AS)
        if integration.finish(after) is not None and recreated_as != name:
            await self._delete_copy(copy, integration)
            return None
        if after is not job:
            then = f"; {name} waits in its place" if name else ""
            self.events.record(kind, after, "Stopped", f"{reason}{then}")
        return after

    async def may_start(self, job: Body, integration: Integration) -> bool:
        """False for a copy whose original ended by itself: the copy is deleted.

        Raises `LaterError` while the original runs and was not ended for this copy.
        """
        name, _, uid = annotations_of(job).get(names.RECREATED_FROM, "").partition("/")
        if not name:
            return True
        metadata = job["metadata"]
        original = await self.writer.get(integration.kind, metadata["namespace"], name)
        if original is None or original["metadata"]["uid"] != uid:
            return True
        if annotations_of(original).get(names.RECREATED_AS) == metadata["name"]:
            return True
        if integration.finish(original) is None:
            raise LaterError(
                f"{integration.kind.kind} {name} runs, and {metadata['name']} is its copy"
            )
        await self._delete_copy(job, integration)
        return False

    async def _create_copy(self, job: Body, integration: Integration, reason: str) -> Body:
        kind = integration.kind
        copy, is_new = await self.writer.create(kind, copy_of(job, integration))
        annotations = annotations_of(copy)
        if annotations.get(names.RECREATED_FROM) != _origin(job):
            log.error("a name is taken", kind=kind.kind, name=copy["metadata"]["name"])
            raise RefusedError(
                f"{kind.kind} {copy['metadata']['name']} is there and is no copy of this one",
                status=409,
                reason="AlreadyExists",
            )
        if is_new:
            text = f"Waits in the place of {job['metadata']['name']}: {reason}"
            self.events.record(kind, copy, "Recreated", text)
        return copy

    async def _delete_copy(self, copy: Body | None, integration: Integration) -> None:
        """Delete the copy of a job that ended by itself, unless a user has started the copy."""
        if copy is not None and integration.held(copy):
            await self.writer.delete(integration.kind, copy)
