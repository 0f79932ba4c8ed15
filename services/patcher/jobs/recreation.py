"""Ends a job that cannot be suspended, and creates a copy of it that waits for quota again.

1. The copy is created, suspended. Its name follows from the ended job, so it is created only once.
2. The running job is ended. A crash before this step leaves both jobs, and the steps are repeated.
3. The copy starts only after the job has ended, because the job holds the quota until then.

A job may end by itself between steps 1 and 2 while no patcher runs. Step 2 is not repeated then, so
whoever starts the copy looks first whether the job was ended for it.
"""

from dataclasses import dataclass
from typing import Final

import structlog

from services.patcher.cluster.errors import is_transient_refusal
from services.patcher.cluster.events import EventRecorder
from services.patcher.cluster.patches import JsonPatch
from services.patcher.cluster.writer import Writer
from services.patcher.jobs.waiting_copy import applied, copy_of, is_copy_of
from shared.bus.port import LaterError
from shared.contracts.kube import names
from shared.contracts.kube.bodies import Body, annotations_of
from shared.integrations import Integration
from shared.integrations.pointers import pointer
from shared.kube.port import NotFoundError, Patch, RefusedError

log = structlog.get_logger(__name__)

NAMES_MAX: Final = 5
"""Names that are tried for a copy. They follow from the job's uid, so that its tenant can take some."""

_RECREATED_AS_PATH: Final = pointer(("metadata", "annotations", names.RECREATED_AS))


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
    return None if applied(job, operations) == job else operations


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
        workload: Body | None = None,
    ) -> Body | None:
        """End `job`, with `recreate` after its copy is created. Returns the job as written.

        `cancel` ends it at once: nothing more of it starts. It ran without admission, so it is ended also
        where the API server refuses its copy. `workload` says what the job was admitted with.

        Returns None if it ended by itself or is gone: then nothing is left to do. Raises
        `RefusedError`.
        """
        kind = integration.kind
        copy = None
        if recreate:
            try:
                copy = await self._create_copy(job, integration, reason, workload)
            except RefusedError as error:
                if not cancel:
                    raise
                text = f"No copy waits in its place: {error}"
                self.events.record(kind, job, "RecreationRefused", text, type_="Warning")
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

    async def _create_copy(
        self, job: Body, integration: Integration, reason: str, workload: Body | None
    ) -> Body:
        """Create the copy, or find it. Raises `RefusedError`.

        A name that somebody else has taken is passed over. What the API server refuses is tried without
        all that the job's tenant may have written into it.
        """
        for attempt in range(NAMES_MAX):
            wanted = copy_of(job, integration, workload, attempt=attempt)
            try:
                copy, is_new = await self.writer.create(integration.kind, wanted)
            except RefusedError as error:
                if is_transient_refusal(error):
                    raise
                wanted = copy_of(job, integration, workload, attempt=attempt, bare=True)
                copy, is_new = await self.writer.create(integration.kind, wanted)
            if is_copy_of(copy, job):
                if is_new:
                    text = f"Waits in the place of {job['metadata']['name']}: {reason}"
                    self.events.record(integration.kind, copy, "Recreated", text)
                return copy
            log.error(
                "the name for a copy of a job is taken",
                kind=integration.kind.kind,
                name=copy["metadata"]["name"],
            )
        raise RefusedError(
            f"{integration.kind.kind} {copy['metadata']['name']} is there and is no copy of this one",
            status=409,
            reason="AlreadyExists",
        )

    async def _delete_copy(self, copy: Body | None, integration: Integration) -> None:
        """Delete the copy of a job that ended by itself, unless a user has started the copy."""
        if copy is not None and integration.held(copy):
            await self.writer.delete(integration.kind, copy)
