"""The base of every message that crosses NATS.

A message is at once an event and the new state of what its subject names: the
latest message of a subject says all that is known, so a reader may skip the earlier ones.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

__all__ = ["BODY_REF", "TRACEPARENT", "Message", "Part", "UndecodableError"]

TRACEPARENT: Final = "traceparent"
"""Header, and suffix of the annotation, that carries the W3C trace context."""

BODY_REF: Final = "Sluice-Body"
"""Header with the place of the whole body, where the message is only a short form of it."""


class UndecodableError(ValueError):
    """A body that no version of ours wrote. It goes to `DEAD`; asking again will not help."""

    def __init__(self, type_: str, cause: ValidationError | str) -> None:
        super().__init__(f"{type_}: {cause if isinstance(cause, str) else _first(cause)}")


def _first(cause: ValidationError) -> str:
    first = cause.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "body"
    return f"{where}: {first['msg']} (got {str(first.get('input'))[:80]!r})"


class Part(BaseModel):
    """A piece of a message: immutable, unknown fields ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed. Raises `TypeError` for a field that there is not."""
        if unknown := changes.keys() - type(self).model_fields.keys():
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        return self.model_copy(update=changes)

    def same_except(self, other: Self | None, *ignored: str) -> bool:
        """Whether both have the same fields, apart from those named; False for None."""
        if other is None:
            return False
        ours, theirs = self.__dict__, other.__dict__
        return all(ours[name] == theirs[name] for name in ours if name not in ignored)


class Message(Part):
    """One immutable state on the wire.

    Readers ignore fields that they do not know, so a publisher may add an optional field. Renaming,
    removing or retyping one needs a new message type.
    """

    stream: ClassVar[str]
    """The log that keeps it; its view is `<stream>_NOW`."""

    type: ClassVar[str]
    """`ce-type`, for instance ``dev.sluicegate.admission.v1``."""

    traceparent: str | None = Field(default=None, exclude=True)
    """W3C trace context of the workload's one trace. Travels as a header, not in the body."""

    @property
    def subject(self) -> str:
        """Where it is published: the object whose state it is."""
        raise AssertionError(f"{type(self).__name__} defines no subject")

    @property
    def message_id(self) -> str | None:
        """A `Nats-Msg-Id` that is the same whoever publishes this state; None: publisher's own."""
        return None

    @property
    def body_ref(self) -> str | None:
        """``<name>@<sha256>`` of the whole body in the object store; None: this is the whole."""
        return None

    def repeats(self, earlier: "Message | None") -> bool:
        """Whether both messages are equal except for the time `at`; False if `earlier` is None."""
        return type(earlier) is type(self) and all(
            getattr(self, name) == getattr(earlier, name)
            for name in type(self).model_fields
            if name != "at"
        )

    def encode(self) -> bytes:
        """JSON that a person can read in ``nats stream view``."""
        return self.model_dump_json(exclude_none=True).encode()

    @classmethod
    def decode(cls, data: bytes, headers: Mapping[str, str] | None = None) -> Self:
        """Read a body of this type; `traceparent` comes from the headers."""
        try:
            message = cls.model_validate_json(data)
        except ValidationError as error:
            raise UndecodableError(cls.type, error) from error
        trace = headers.get(TRACEPARENT) if headers else None
        return message if trace is None else message.model_copy(update={"traceparent": trace})
