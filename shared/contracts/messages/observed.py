"""What a watcher saw in one cluster."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

from shared.contracts import subjects
from shared.contracts.kube.bodies import Body, as_body
from shared.contracts.kube.conditions import are_conditions
from shared.contracts.kube.kinds import DEPARTURE
from shared.contracts.kube.moments import Moment
from shared.contracts.kube.numbers import is_at_least
from shared.contracts.messages.base import Message, UndecodableError
from shared.contracts.refs import ObjectRef
from shared.contracts.subjects import Stream

GONE: Final = ":gone"
"""End of the message id of a tombstone."""


class ObservedHeader(Message):
    """`Observed` without the object: reading only this saves decoding the object."""

    stream: ClassVar[Stream] = Stream.OBSERVED
    type: ClassVar[str] = "dev.sluicegate.observed.v1"

    cluster: str
    group: str
    version: str
    plural: str
    kind: str
    namespace: str | None = None
    """None for cluster-scoped kinds."""

    name: str
    uid: str
    resource_version: str
    """Opaque, as Kubernetes gives it; equal only for equal states of one uid."""

    deleted: bool = False
    """True: a tombstone. `object` is then what remains of the last state that was seen, if any was: identity,
    controller, and when it began and ended."""

    def ends(self, uid: str, version: str) -> bool:
        """Whether this tombstone says that the object `uid`, last seen as `version`, is gone.

        That of an earlier object of the name does not end the present one. That of a later one does: who
        reads late gets the last message of a name only, and no tombstone of what was there before.
        """
        ours = self.resource_version
        return self.uid == uid or (ours != version and is_at_least(ours, version))

    @property
    def subject(self) -> str:
        """``sluice.observed.<cluster>.<namespace>.<name>.<plural>_<group>``."""
        detail = f"{self.plural}_{self.group.replace('.', '_')}"
        return subjects.join("observed", self.cluster, self.namespace, self.name, detail=detail)


class Observed(ObservedHeader):
    """One Kubernetes object as the API server last showed it, or that it is gone."""

    object: dict[str, Any] | None = None
    """Without `managedFields` and `last-applied-configuration`; a Secret without its data."""

    object_ref: str | None = None
    """`<name>@<sha256>` of this whole message in the object store, if the object was too large.
    `object` is then the part of it that fits."""

    @classmethod
    def decode(cls, data: bytes, headers: Mapping[str, str] | None = None) -> Self:
        """Read a body, as `Message.decode`; its object is the one that the message names.

        Raises `UndecodableError` also for what no API server has: whoever reads on trusts it.
        """
        message = super().decode(data, headers)
        problem = None if message.object is None else _problem_of(message.object, message)
        if problem is not None:
            raise UndecodableError(cls.type, f"object.{problem}")
        return message

    @property
    def body(self) -> Body | None:
        """`object` with its type; None also for one that does not name itself, which is no server's."""
        obj = self.object
        if (
            obj is None
            or "name" not in (metadata := obj.get("metadata") or {})
            or "uid" not in metadata
            or ("namespace" in metadata) != (self.namespace is not None)
        ):
            return None
        return as_body(obj)

    def with_object(self, obj: dict[str, Any]) -> "Observed":
        """The same observation with another object."""
        return self.model_copy(update={"object": obj})

    def ended(self) -> "Observed":
        """The tombstone of what was observed."""
        return self.model_copy(update={"deleted": True})

    def apart(self) -> "Observed | None":
        """What says that this job, which is gone, has pods still, beside the next one of its name.

        Its name is the uid of the job. None if the last state of the job is unknown.
        """
        if self.object is None:
            return None
        owners = (self.object.get("metadata") or {}).get("ownerReferences") or []
        metadata = {"name": self.uid, "uid": self.uid, "namespace": self.namespace}
        return Observed(
            cluster=self.cluster,
            group=DEPARTURE.group,
            version=DEPARTURE.version,
            plural=DEPARTURE.plural,
            kind=DEPARTURE.kind,
            namespace=self.namespace,
            name=self.uid,
            uid=self.uid,
            resource_version=self.resource_version,
            object={
                "metadata": {**metadata, "ownerReferences": owners},
                "spec": {"group": self.group, "plural": self.plural, "object": self.object},
            },
        )

    def departed(self) -> "Observed | None":
        """The job of which a departure speaks, under a name that no object has; None if it is none.

        It is gone as the departure is.
        """
        spec = (self.object or {}).get("spec") or {}
        body, group, plural = (spec.get(field) for field in ("object", "group", "plural"))
        if not (isinstance(body, dict) and isinstance(group, str) and isinstance(plural, str)):
            return None
        metadata = body.get("metadata")
        if not isinstance(metadata, dict) or metadata.get("uid") != self.uid:
            return None
        name = metadata.get("name")
        named = self.model_copy(update={"group": group, "plural": plural, "name": name})
        if not isinstance(name, str) or _problem_of(body, named) is not None:
            return None
        return named.model_copy(update={"name": f"{name}/{self.uid}", "object": body})

    def truncated_to(self, obj: dict[str, Any], ref: str | None) -> "Observed":
        """The same observation with a part of the object. `ref`: the reference to the whole message."""
        return self.model_copy(update={"object": obj, "object_ref": ref})

    @property
    def ref(self) -> ObjectRef:
        """The observed object."""
        return ObjectRef(self.cluster, self.kind, self.namespace, self.name)

    @property
    def body_ref(self) -> str | None:
        """The reference to the whole message."""
        return self.object_ref

    @property
    def message_id(self) -> str | None:
        """A relist or a second watcher publishes the same state under the same id.

        A departure has uid and version of its job, and ids of its own.
        """
        apart = (
            ":apart" if self.plural == DEPARTURE.plural and self.group == DEPARTURE.group else ""
        )
        gone = GONE if self.deleted else ""
        return f"{self.cluster}:{self.uid}:{self.resource_version}:{self.version}{apart}{gone}"


def _problem_of(obj: Mapping[str, Any], header: ObservedHeader) -> str | None:
    """Return what is wrong with an object, behind the name of the field; None if nothing is."""
    metadata = obj.get("metadata", {})
    if not isinstance(metadata, dict):
        return "metadata: must be an object"
    for field in ("name", "uid", "namespace"):
        named = getattr(header, field)
        if metadata.get(field, named) != named:
            return f"metadata.{field}: {metadata[field]!r}: the message speaks of {named!r}"
    for field in ("labels", "annotations"):
        values = metadata.get(field)
        if values is not None and not (
            isinstance(values, dict) and all(isinstance(value, str) for value in values.values())
        ):
            return f"metadata.{field}: must be a map of strings"
    owners = metadata.get("ownerReferences")
    if owners is not None and not (isinstance(owners, list) and all(map(_is_owner, owners))):
        return "metadata.ownerReferences: each must have apiVersion, kind, name and uid"
    finalizers = metadata.get("finalizers")
    if finalizers is not None and not (
        isinstance(finalizers, list) and all(isinstance(one, str) for one in finalizers)
    ):
        return "metadata.finalizers: must be a list of strings"
    return _problem_of_contents(obj)


def _problem_of_contents(obj: Mapping[str, Any]) -> str | None:
    """As `_problem_of`, for the parts that objects of every kind have: who reads on relies on their types."""
    for field in ("spec", "status"):
        if not isinstance(obj.get(field) or {}, dict):
            return f"{field}: must be an object"
    if not are_conditions((obj.get("status") or {}).get("conditions")):
        return "status.conditions: each must be an object of strings"
    return None


def _is_owner(owner: Any) -> bool:
    return isinstance(owner, dict) and all(
        isinstance(owner.get(field), str) for field in ("apiVersion", "kind", "name", "uid")
    )


class Synced(Message):
    """Everything that the watcher listed is in the log before this message."""

    stream: ClassVar[Stream] = Stream.OBSERVED
    type: ClassVar[str] = "dev.sluicegate.synced.v1"

    cluster: str
    epoch: str
    """A new one for each full list of all kinds; a reader is synced when it has read one."""

    kinds: list[str]
    """`<plural>_<group>` of each kind that was listed; unserved kinds are left out."""

    at: Moment

    @property
    def subject(self) -> str:
        """``sluice.observed.<cluster>._._.synced``."""
        return subjects.synced_subject(self.cluster)
