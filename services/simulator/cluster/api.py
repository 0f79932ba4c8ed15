"""The verbs of the API: what a request does to the store, admission included.

Everything between reading an object and storing it is synchronous, except the admission chain. So
without webhooks a request is one step, and the same requests in the same order give the same store.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Final, Literal

from services.simulator.cluster import patches, strategies
from services.simulator.cluster.admission import AdmissionChain, AdmissionRequest
from services.simulator.cluster.collector import ORPHAN, Collector
from services.simulator.cluster.conversion import convert
from services.simulator.cluster.errors import (
    ApiError,
    Cause,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
    unsupported_media_type,
)
from services.simulator.cluster.kinds import definitions
from services.simulator.cluster.kinds.catalogue import BUILT_IN, NAMESPACES, PODS
from services.simulator.cluster.kinds.registry import Kind, KindRegistry, Obj
from services.simulator.cluster.rules import Rules
from services.simulator.cluster.storage.store import HISTORY_MAX, Store
from services.simulator.cluster.storage.stored import Stored
from shared.contracts.kube.names import FOREGROUND_DELETION

PatchType = Literal["json", "merge", "strategic"]

PATCH_TRIES_MAX: Final = 5
"""How often a patch without a resourceVersion is applied again after a concurrent write."""

SYSTEM_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
POD_GRACE_SECONDS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """The options of a delete request."""

    uid: str | None = None
    resource_version: str | None = None
    propagation: str = "Background"
    grace_seconds: int | None = None
    dry_run: bool = False


class Api:
    """The API of one cluster. Raises only `ApiError`."""

    def __init__(
        self, *, now: Callable[[], datetime], random: Random, history_max: int = HISTORY_MAX
    ) -> None:
        self.kinds = KindRegistry(BUILT_IN)
        self.store = Store(history_max=history_max)
        self.rules = Rules(now=now, random=random)
        self.admission = AdmissionChain()
        self.graceful_pods = False
        """Set by the simulated kubelet: a pod on a node then ends only when the kubelet ends it."""

        self.collector = Collector(self.store, self._collect)
        for name in SYSTEM_NAMESPACES:
            self._insert(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace"}, name)

    def _insert(self, kind: Kind, obj: Obj, name: str) -> None:
        obj = self.rules.prepare_create(kind, {**obj, "metadata": {"name": name}})
        self.store.put(kind, strategies.complete(kind, obj))

    # --- reading -------------------------------------------------------------------------------

    def get(self, kind: Kind, namespace: str, name: str) -> Stored:
        """Return the object; 404 if there is none."""
        stored = self.store.get(kind, namespace, name)
        if stored is None:
            raise not_found(kind, name)
        return stored

    # --- create --------------------------------------------------------------------------------

    async def create(
        self, kind: Kind, version: str, namespace: str, body: Any, *, dry_run: bool = False
    ) -> Stored:
        """Create an object and return it; with `dry_run`, return what would be stored."""
        obj = self.rules.read(kind, version, namespace, body)
        metadata = obj["metadata"]
        if not metadata.get("name") and not metadata.get("generateName"):
            message = "Required value: name or generateName is required"
            cause = Cause(reason="FieldValueRequired", field="metadata.name", message=message)
            raise invalid(kind, "", [cause])
        if metadata.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        self._check_namespace(kind, namespace, str(metadata.get("name", "")))
        obj = strategies.apply_defaults(kind, obj)
        request = AdmissionRequest(
            operation="CREATE",
            kind=kind,
            version=version,
            namespace=namespace,
            name=str(metadata.get("name", "")),
            obj=obj,
            dry_run=dry_run,
        )
        mutated = await self.admission.mutate(request)
        assert mutated is not None, "a creation without an object"
        prepared = self.rules.prepare_create(
            kind, mutated, taken=lambda name: self.store.get(kind, namespace, name) is not None
        )
        obj = strategies.complete(kind, prepared)
        request.obj, request.name = obj, obj["metadata"]["name"]
        self._check_definition(kind, obj)
        await self.admission.validate(request)
        self.rules.check_size(obj)
        # Webhooks take time: the namespace and the name may have changed meanwhile.
        self._check_namespace(kind, namespace, request.name)
        if self.store.get(kind, namespace, request.name) is not None:
            raise already_exists(kind, request.name)
        obj = convert(kind, obj, kind.storage_version)
        if dry_run:
            return Stored(kind, obj, 0)
        stored = self.store.put(kind, obj)
        return self._define(stored) if kind.resource == definitions.CRD_RESOURCE else stored

    def _check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        space = self.store.get(NAMESPACES, "", namespace)
        if space is None:
            raise not_found(NAMESPACES, namespace)
        if "deletionTimestamp" in space.obj["metadata"]:
            message = f"namespace {namespace} is being terminated"
            cause = Cause(
                reason="NamespaceTerminating", field="metadata.namespace", message=message
            )
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise forbidden(kind, name, why, [cause])

    def _check_definition(self, kind: Kind, obj: Obj) -> None:
        if kind.resource != definitions.CRD_RESOURCE:
            return
        name = obj["metadata"]["name"]
        try:
            described = definitions.kind_from(obj)
        except (KeyError, TypeError, AttributeError) as error:
            cause = Cause(
                reason="FieldValueRequired", field="spec", message=f"Required value: {error}"
            )
            raise invalid(kind, name, [cause]) from error
        if described is not None and described.resource != name:
            message = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
            cause = Cause(reason="FieldValueInvalid", field="metadata.name", message=message)
            raise invalid(kind, name, [cause])

    def _define(self, stored: Stored) -> Stored:
        described = definitions.kind_from(stored.obj)
        if described is not None:
            self.kinds.add(described)
        status = definitions.accepted(stored.obj, self.rules.now())
        metadata = dict(stored.obj["metadata"])
        return self.store.put(stored.kind, {**stored.obj, "metadata": metadata, "status": status})

    def _undefine(self, definition: Stored) -> None:
        described = definitions.kind_from(definition.obj)
        if described is None:
            return
        for stored in self.store.objects(described):
            self.store.remove(stored)
        self.kinds.remove(described)
        if (kind := definitions.shipped(described.group, described.plural)) is not None:
            self.kinds.add(kind)

    # --- update and patch ----------------------------------------------------------------------

    async def update(
        self,
        kind: Kind,
        version: str,
        namespace: str,
        name: str,
        body: Any,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Stored:
        """Replace the object (or, on ``status``, only that part of it)."""
        obj = self.rules.read(kind, version, namespace, body)
        metadata = obj["metadata"]
        if metadata.get("name", name) != name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL "
                f"({name})"
            )
        old = self.get(kind, namespace, name)
        if (uid := metadata.get("uid")) and uid != old.uid:
            raise conflict(kind, name, _precondition("UID", uid, old.uid))
        if kind.custom and not metadata.get("resourceVersion"):
            message = "Invalid value: 0: must be specified for an update"
            cause = Cause(
                reason="FieldValueInvalid", field="metadata.resourceVersion", message=message
            )
            raise invalid(kind, name, [cause])
        obj = strategies.apply_defaults(kind, obj)
        return await self._write(old, version, obj, subresource=subresource, dry_run=dry_run)

    async def patch(
        self,
        kind: Kind,
        version: str,
        namespace: str,
        name: str,
        patch: Any,
        patch_type: PatchType,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Stored:
        """Apply a patch to the latest state. Retries after a concurrent write."""
        if patch_type == "strategic" and kind.custom:
            raise unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json-patch+json, application/merge-patch+json, "
                "application/apply-patch+yaml"
            )
        for attempt in range(PATCH_TRIES_MAX):
            old = self.get(kind, namespace, name)
            current = convert(kind, old.obj, version)
            patched = self._patched(current, patch, patch_type)
            obj = self.rules.read(kind, version, namespace, patched)
            try:
                return await self._write(
                    old, version, obj, subresource=subresource, dry_run=dry_run
                )
            except ApiError as error:
                moved = self.store.get(kind, namespace, name) is not old
                own = obj["metadata"].get("resourceVersion") != str(old.version)
                if error.reason != "Conflict" or not moved or own or attempt + 1 == PATCH_TRIES_MAX:
                    raise
        raise AssertionError("the loop returns or raises")

    @staticmethod
    def _patched(current: Obj, patch: Any, patch_type: PatchType) -> Any:
        if patch_type == "json":
            return patches.json_patch(current, patch)
        if not isinstance(patch, dict):
            raise bad_request("error decoding patch: the patch must be a JSON object")
        if patch_type == "merge":
            return patches.merge_patch(current, patch)
        return patches.strategic_merge_patch(current, patch)

    async def _write(
        self, old: Stored, version: str, obj: Obj, *, subresource: str, dry_run: bool
    ) -> Stored:
        kind = old.kind
        before = convert(kind, old.obj, version)
        as_seen = Stored(kind, before, old.version)
        obj = self.rules.prepare_update(kind, as_seen, obj, subresource)
        request = AdmissionRequest(
            operation="UPDATE",
            kind=kind,
            version=version,
            namespace=old.namespace,
            name=old.name,
            obj=obj,
            old=before,
            subresource=subresource,
            dry_run=dry_run,
        )
        mutated = await self.admission.mutate(request)
        assert mutated is not None, "an update without an object"
        if mutated is not obj:
            obj = self.rules.prepare_update(kind, as_seen, mutated, subresource)
        if not subresource:
            strategies.validate_update(kind, as_seen, obj)
            self._check_definition(kind, obj)
        request.obj = obj
        await self.admission.validate(request)
        if self.store.get(kind, old.namespace, old.name) is not old:
            raise conflict(kind, old.name)
        obj = convert(kind, obj, kind.storage_version)
        if obj == old.obj:
            return old  # Nothing changed: no new version, no event.
        self.rules.check_size(obj)
        if dry_run:
            return Stored(kind, obj, old.version)
        metadata = obj["metadata"]
        if "deletionTimestamp" in metadata and not _held(obj):
            return self._remove(old, obj)
        obj["metadata"] = dict(metadata)
        stored = self.store.put(kind, obj)
        if kind.resource == definitions.CRD_RESOURCE and not subresource:
            return self._define(stored)
        return stored

    # --- delete --------------------------------------------------------------------------------

    async def delete(
        self, kind: Kind, namespace: str, name: str, options: DeleteOptions
    ) -> tuple[Stored, bool]:
        """Delete the object. Returns it, and True if it is gone: no finalizer holds it."""
        stored = self.get(kind, namespace, name)
        self._check_delete(stored, options)
        request = AdmissionRequest(
            operation="DELETE",
            kind=kind,
            version=kind.storage_version,
            namespace=namespace,
            name=name,
            obj=None,
            old=stored.obj,
            dry_run=options.dry_run,
        )
        await self.admission.mutate(request)
        await self.admission.validate(request)
        stored = self.get(kind, namespace, name)
        self._check_delete(stored, options)
        if options.dry_run:
            return stored, True
        return self.delete_now(stored, options)

    @staticmethod
    def _check_delete(stored: Stored, options: DeleteOptions) -> None:
        if options.uid is not None and options.uid != stored.uid:
            why = _precondition("UID", options.uid, stored.uid)
            raise conflict(stored.kind, stored.name, why)
        version = str(stored.version)
        if options.resource_version is not None and options.resource_version != version:
            why = _precondition("ResourceVersion", options.resource_version, version)
            raise conflict(stored.kind, stored.name, why)

    def delete_now(
        self, stored: Stored, options: DeleteOptions | None = None
    ) -> tuple[Stored, bool]:
        """Delete without admission, as the cluster's own controllers do."""
        options = options or DeleteOptions()
        kind, metadata = stored.kind, dict(stored.obj["metadata"])
        before = list(metadata.get("finalizers") or ())
        # The last deletion says what becomes of what is owned, as in the real API server.
        finalizers = [one for one in before if one not in {FOREGROUND_DELETION, ORPHAN}]
        extra = {"Foreground": FOREGROUND_DELETION, "Orphan": ORPHAN}.get(options.propagation)
        if extra and self.collector.dependents(stored.uid):
            finalizers.append(extra)
        if finalizers or before:
            metadata["finalizers"] = finalizers
        grace = self._grace(stored, options)
        obj = {**stored.obj, "metadata": metadata}
        if not grace and not _held(obj):
            return self._remove(stored, obj), True
        if "deletionTimestamp" in metadata:
            another = finalizers != before
            if metadata.get("deletionGracePeriodSeconds", 0) > grace:
                metadata["deletionGracePeriodSeconds"] = grace
            elif not another:
                return stored, False
        else:
            metadata["deletionTimestamp"] = self.rules.now()
            metadata["deletionGracePeriodSeconds"] = grace
            if "generation" in metadata:
                metadata["generation"] += 1
        if kind is NAMESPACES:
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        return self.store.put(kind, obj), False

    def _grace(self, stored: Stored, options: DeleteOptions) -> int:
        """Grace period of a running pod in seconds; 0 if its kubelet does not have to stop it."""
        if not self.graceful_pods or stored.kind.resource != PODS.resource:
            return 0
        spec = stored.obj.get("spec") or {}
        if not spec.get("nodeName"):
            return 0
        if (stored.obj.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
            return 0
        if options.grace_seconds is not None:
            return options.grace_seconds
        wished = spec.get("terminationGracePeriodSeconds")
        return max(wished, 0) if isinstance(wished, int) else POD_GRACE_SECONDS

    def finalize_namespace(self, name: str) -> None:
        """Remove a namespace that is terminating and empty."""
        stored = self.store.get(NAMESPACES, "", name)
        if stored is not None and "deletionTimestamp" in stored.obj["metadata"]:
            obj = {**stored.obj, "spec": {}}
            if not _held(obj):
                self._remove(stored, obj)

    def _remove(self, stored: Stored, last: Obj) -> Stored:
        removed = self.store.remove(stored, last)
        if stored.kind.resource == definitions.CRD_RESOURCE:
            self._undefine(removed)
        return removed

    def _collect(self, stored: Stored, propagation: str) -> None:
        self.delete_now(stored, DeleteOptions(propagation=propagation))


def _held(obj: Obj) -> bool:
    """True if a finalizer or a grace period keeps a deleted object."""
    metadata = obj["metadata"]
    spec = obj.get("spec")
    space = obj["kind"] == "Namespace" and obj["apiVersion"] == "v1"
    return bool(
        metadata.get("finalizers")
        or metadata.get("deletionGracePeriodSeconds")
        or (space and isinstance(spec, dict) and spec.get("finalizers"))
    )


def _precondition(what: str, asked: str, actual: str) -> str:
    return f"Precondition failed: {what} in precondition: {asked}, {what} in object meta: {actual}"
