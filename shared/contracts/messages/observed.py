"""What a watcher saw in one cluster."""

from datetime import datetime
from typing import Any, ClassVar

from shared.contracts import subjects
from shared.contracts.kube.bodies import Body, as_body
from shared.contracts.messages.base import Message
from shared.contracts.refs import ObjectRef


class ObservedHeader(Message):
    """`Observed` without the object: reading only this saves decoding the object."""

    stream: ClassVar[str] = "OBSERVED"
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
    """True: a tombstone. `object` is then the last state that was seen, if any was."""

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

    @property
    def body(self) -> Body | None:
        """`object` with its type."""
        return None if self.object is None else as_body(self.object)

    def with_object(self, obj: dict[str, Any]) -> "Observed":
        """The same observation with another object."""
        return self.model_copy(update={"object": obj})

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
        """A relist or a second watcher publishes the same state under the same id."""
        gone = ":gone" if self.deleted else ""
        return f"{self.cluster}:{self.uid}:{self.resource_version}:{self.version}{gone}"


class Synced(Message):
    """Everything that the watcher listed is in the log before this message."""

    stream: ClassVar[str] = "OBSERVED"
    type: ClassVar[str] = "dev.sluicegate.synced.v1"

    cluster: str
    epoch: str
    """A new one for each full list of all kinds; a reader is synced when it has read one."""

    kinds: list[str]
    """`<plural>_<group>` of each kind that was listed; unserved kinds are left out."""

    at: datetime

    @property
    def subject(self) -> str:
        """``sluice.observed.<cluster>._._.synced``."""
        return subjects.join("observed", self.cluster, None, None, detail="synced")
