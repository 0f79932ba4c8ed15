"""Validation and server-set fields of objects (registry strategies of an API server)."""

from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any, Final
from uuid import UUID

import orjson

from services.simulator.cluster.errors import (
    ApiError,
    Cause,
    bad_request,
    conflict,
    invalid,
)
from services.simulator.cluster.kinds.registry import Kind, Obj
from services.simulator.cluster.names import metadata_causes
from services.simulator.cluster.storage.stored import Stored

OBJECT_BYTES_MAX: Final = 1_572_864
"""Limit of one etcd request, 1.5 MiB."""

SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Alphabet of generated names: no vowels, no characters that look alike."""

SUFFIX_LENGTH: Final = 5
GENERATED_TRIES_MAX: Final = 8
"""Attempts to draw an unused name, as in KEP-4420."""

GENERATED_BASE_MAX: Final = 63 - SUFFIX_LENGTH

SYSTEM_METADATA: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
"""Fields that only the server sets: an update keeps the stored values."""


def timestamp(moment: datetime) -> str:
    """Format a time as ``metav1.Time``: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Rules:
    """Turns a client's object into one that may be stored. All randomness comes from one `Random`."""

    def __init__(self, *, now: Callable[[], datetime], random: Random) -> None:
        self._now = now
        self._random = random

    def now(self) -> str:
        """Return the current time as a timestamp."""
        return timestamp(self._now())

    def read(self, kind: Kind, version: str, namespace: str, body: Any) -> Obj:
        """Check that a body is an object of this URL; return a copy that the caller may change."""
        if not isinstance(body, dict):
            raise bad_request("the object provided is unrecognized (must be a JSON object)")
        api_version = kind.api_version(version)
        named = (body.get("apiVersion", api_version), body.get("kind", kind.kind))
        if named != (api_version, kind.kind):
            raise bad_request(
                f"the API version in the data ({named[0]}, {named[1]}) does not match the expected "
                f"API version ({api_version}, {kind.kind})"
            )
        metadata = _tidy(body.get("metadata") or {})
        if kind.namespaced:
            if metadata.setdefault("namespace", namespace) != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on "
                    "the request"
                )
        else:
            metadata.pop("namespace", None)
        # Keep the order of members: lists of built-in kinds rely on it.
        obj: Obj = {"apiVersion": api_version, "kind": kind.kind, "metadata": metadata}
        obj.update((key, value) for key, value in body.items() if key not in obj)
        return obj

    def prepare_create(
        self, kind: Kind, obj: Obj, *, taken: Callable[[str], bool] = lambda _: False
    ) -> Obj:
        """Fill in what the server sets on a new object, and validate its metadata.

        `taken` returns True for a drawn name that another object has; another name is then drawn.
        """
        metadata = _tidy(obj["metadata"])
        if not metadata.get("name") and metadata.get("generateName"):
            for _ in range(GENERATED_TRIES_MAX):
                metadata["name"] = self._generated(str(metadata["generateName"]))
                if not taken(metadata["name"]):
                    break
        for field in (
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "resourceVersion",
            "selfLink",
        ):
            metadata.pop(field, None)
        metadata["uid"] = str(UUID(int=self._random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = self.now()
        metadata.pop("generation", None)
        if kind.generation:
            metadata["generation"] = 1
        obj = {**obj, "metadata": metadata}
        if kind.has_status and "status" in obj:
            del obj["status"]
        self.check(kind, obj)
        return obj

    def _generated(self, base: str) -> str:
        suffix = "".join(self._random.choice(SUFFIX_LETTERS) for _ in range(SUFFIX_LENGTH))
        return base[:GENERATED_BASE_MAX] + suffix

    def prepare_update(self, kind: Kind, old: Stored, obj: Obj, subresource: str) -> Obj:
        """Merge a client's new state into the stored one, as far as the (sub)resource may change it."""
        before, metadata = old.obj["metadata"], _tidy(obj["metadata"])
        self._check_identity(kind, old, metadata)
        for field in SYSTEM_METADATA:
            if field in before:
                metadata[field] = before[field]
            else:
                metadata.pop(field, None)
        metadata["resourceVersion"] = before["resourceVersion"]
        if "generation" in before:
            metadata["generation"] = before["generation"]
        else:
            metadata.pop("generation", None)
        if subresource == "status":
            obj = {**old.obj, "status": obj.get("status", {})}
            # A status write changes only the status; for built-in kinds also labels and annotations.
            if not kind.custom:
                for field in ("labels", "annotations"):
                    before = _with(before, field, metadata.get(field))
            return {**obj, "metadata": before}
        obj = {**obj, "metadata": metadata}
        if kind.has_status:
            obj.pop("status", None)
            if "status" in old.obj:
                obj["status"] = old.obj["status"]
        if kind.generation and _intent(obj) != _intent(old.obj):
            metadata["generation"] = int(before.get("generation", 0)) + 1
        if "deletionTimestamp" in before:
            added = set(metadata.get("finalizers") or ()) - set(before.get("finalizers") or ())
            if added:
                cause = Cause(
                    reason="FieldValueForbidden",
                    field="metadata.finalizers",
                    message="Forbidden: no new finalizers can be added if the object is being "
                    f"deleted, found new finalizers {sorted(added)}",
                )
                raise invalid(kind, old.name, [cause])
        self.check(kind, obj)
        return obj

    def _check_identity(self, kind: Kind, old: Stored, metadata: Obj) -> None:
        causes = [
            Cause(
                reason="FieldValueInvalid",
                field=f"metadata.{field}",
                message=f'Invalid value: "{metadata[field]}": field is immutable',
            )
            for field, value in (("name", old.name), ("namespace", old.namespace), ("uid", old.uid))
            if metadata.get(field, value) != value
        ]
        sent = metadata.get("resourceVersion")
        if sent is not None and sent != old.obj["metadata"]["resourceVersion"]:
            raise conflict(kind, old.name)
        if causes:
            raise invalid(kind, old.name, causes)
        metadata.update(name=old.name)

    def check(self, kind: Kind, obj: Obj) -> None:
        """Raise 422 for metadata that breaks a rule."""
        if causes := metadata_causes(kind, obj):
            raise invalid(kind, str(obj["metadata"].get("name", "")), causes)

    def check_size(self, obj: Obj) -> None:
        """Raise 500 for an object that etcd would refuse, 400 for one that is not valid JSON."""
        try:
            size = len(orjson.dumps(obj))
        except orjson.JSONEncodeError as error:
            # Nested too deeply, or a number of more than 64 bits.
            raise bad_request(f"the object cannot be encoded: {error}") from error
        if size > OBJECT_BYTES_MAX:
            # The API server passes etcd's error on to the client.
            raise ApiError(500, "", "etcdserver: request is too large")


def _with(metadata: Obj, field: str, value: Any) -> Obj:
    if metadata.get(field) == value:
        return metadata
    changed = {**metadata, field: value}
    if value is None:
        del changed[field]
    return changed


def _intent(obj: Obj) -> Obj:
    """The part of an object whose changes increase `metadata.generation`."""
    return {
        key: value
        for key, value in obj.items()
        if key not in {"apiVersion", "kind", "metadata", "status"}
    }


def _tidy(metadata: Any) -> Obj:
    """Return a copy of the metadata without empty members, as typed metadata has it.

    Raises 400 for a member of the wrong type, which a patch may have set.
    """
    if not isinstance(metadata, dict):
        raise bad_request("the object provided is unrecognized: metadata must be an object")
    kept = {key: value for key, value in metadata.items() if value or value in (0, False)}
    _check_types(kept)
    return kept


def _check_types(metadata: Obj) -> None:
    """Raise 400 for members of the wrong type: a typed server cannot decode them."""
    for field in ("labels", "annotations"):
        value = metadata.get(field, {})
        if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
            raise bad_request(
                f"unable to decode: json: cannot unmarshal into metadata.{field} of type "
                "map[string]string"
            )
    for field in ("name", "generateName", "namespace", "uid", "resourceVersion"):
        if not isinstance(metadata.get(field, ""), str):
            raise bad_request(f"unable to decode: json: metadata.{field} must be a string")
    for field in ("finalizers", "ownerReferences"):
        if not isinstance(metadata.get(field, []), list):
            raise bad_request(f"unable to decode: json: metadata.{field} must be an array")
    if not all(isinstance(owner, dict) for owner in metadata.get("ownerReferences", ())):
        raise bad_request("unable to decode: json: an owner reference must be an object")
    if not all(isinstance(finalizer, str) for finalizer in metadata.get("finalizers", ())):
        raise bad_request("unable to decode: json: a finalizer must be a string")
