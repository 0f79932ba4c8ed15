"""The base of every message that crosses NATS.

A message is an event and also the new state of the object that its subject names. The latest message of
a subject is the whole state, so a reader may skip the earlier ones.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import override

from shared.contracts.kube.numbers import whole_number
from shared.contracts.refs import WorkloadRef
from shared.contracts.subjects import Stream

TRACEPARENT: Final = "traceparent"
"""Header, and suffix of the annotation, that carries the W3C trace context."""

BODY_REF: Final = "Sluice-Body"
"""Header with the reference to the whole body, if the message is only a short form."""


SCHEMA_VERSION: Final = "ce-schemaversion"
"""Header with `Message.schema_version` of the writer. Absent: 0, the release before there was one."""

EPOCH: Final = "sluicegate.dev/epoch"
"""Key in the metadata of a log or view: when it was made, in milliseconds since 1970. Absent: 0."""

FORMAT: Final = 1
"""The format of the logs that this release writes and understands, as one whole number.

Raise it by one with any change after which a service of the release before cannot go on with these logs: a
message that it has to act on and would misunderstand, another key of a subject, another meaning of a
sequence or a term. A raised `Message.schema_version` alone is none, as long as the older release may put
the message off. Until `sluice bus migrate --commit` has written it into the streams (`COMMITTED`), a release
has to leave the logs so that the release before goes on with them.
"""

COMMITTED: Final = "sluicegate.dev/committed"
"""Key in the metadata of a log or view: the `FORMAT` below which no release may serve. Absent: each may."""


class UndecodableError(ValueError):
    """A body that no version of ours wrote. It goes to `DEAD`; another attempt does not help."""

    def __init__(self, type_: str, cause: ValidationError | str) -> None:
        super().__init__(f"{type_}: {cause if isinstance(cause, str) else _first(cause)}")


class NewerSchemaError(UndecodableError):
    """A newer release wrote the body, in a schema that this release does not know.

    It is not lost: durable work delays it, and readers keep their present state until a newer release
    reads the stream.
    """

    def __init__(self, type_: str, version: str, known: int) -> None:
        super().__init__(
            type_, f"{SCHEMA_VERSION} {version} is newer than {known}: upgrade this service"
        )


def _first(cause: ValidationError) -> str:
    first = cause.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "body"
    return f"{where}: {first['msg']} (got {str(first.get('input'))[:80]!r})"


class Part(BaseModel):
    """A part of a message: immutable, unknown fields ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    _all_fields: ClassVar[set[str]] = set()
    """What pydantic calls the fields that were set. Nobody asks for them, and a set for each part would
    take as much memory as its values: all parts of a type share this one."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        cls._all_fields = set(cls.model_fields)

    @override
    def model_post_init(self, _: Any, /) -> None:
        """Share what is the same for all parts of this type."""
        object.__setattr__(self, "__pydantic_fields_set__", self._all_fields)

    def __copy__(self) -> Self:
        copied = type(self).__new__(type(self))
        object.__setattr__(copied, "__dict__", self.__dict__.copy())
        object.__setattr__(copied, "__pydantic_fields_set__", self._all_fields)
        object.__setattr__(copied, "__pydantic_extra__", None)
        object.__setattr__(copied, "__pydantic_private__", None)
        return copied

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed. Raises `TypeError` for an unknown field."""
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

    stream: ClassVar[Stream]
    """The log that keeps it; its view is `<stream>_NOW`."""

    type: ClassVar[str]
    """`ce-type`, for instance ``dev.sluicegate.admission.v1``."""

    schema_version: ClassVar[int] = 1
    """The schema that a reader has to know. Raise it with a change that an older reader would
    misunderstand; an optional field that it may ignore needs nothing. Of a decision, a term, an
    answer of a check and an outcome an older quota reads what it knows: their present fields stay."""

    traceparent: str | None = Field(default=None, exclude=True)
    """W3C trace context of the workload's one trace. Travels as a header, not in the body."""

    @property
    def subject(self) -> str:
        """The subject, which names the object that the message describes."""
        raise AssertionError(f"{type(self).__name__} defines no subject")

    @property
    def message_id(self) -> str | None:
        """A `Nats-Msg-Id` that does not depend on the publisher. None: the publisher makes one."""
        return None

    @property
    def body_ref(self) -> str | None:
        """``<name>@<sha256>`` of the whole body in the object store. None: the message is complete."""
        return None

    @property
    def ruling(self) -> tuple[int, int] | None:
        """(epoch, term) of the leader that decided this; None: it is no decision."""
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
    def is_of_newer_schema(cls, headers: Mapping[str, str]) -> bool:
        """Whether a newer release wrote a message with these headers, in a schema unknown here."""
        version = headers.get(SCHEMA_VERSION)
        return version is not None and not _is_known(version, cls.schema_version)

    @classmethod
    def decode(cls, data: bytes, headers: Mapping[str, str] | None = None) -> Self:
        """Read a body of this type; `traceparent` comes from the headers.

        Raises `NewerSchemaError` for a schema that this release does not know, else `UndecodableError`.
        """
        if headers and cls.is_of_newer_schema(headers):
            raise NewerSchemaError(cls.type, headers[SCHEMA_VERSION][:20], cls.schema_version)
        try:
            message = cls.model_validate_json(data)
        except ValidationError as error:
            raise UndecodableError(cls.type, error) from error
        trace = headers.get(TRACEPARENT) if headers else None
        if trace is not None:
            object.__setattr__(message, "traceparent", trace)  # Nobody else has it yet.
        return message


class WorkloadMessage(Message):
    """A message about one workload."""

    cluster: str
    namespace: str
    name: str
    """The Workload object's name (`job-…`, `pipelinerun-…`), so that kinds cannot collide."""

    @property
    def ref(self) -> WorkloadRef:
        """The workload that it is about."""
        return WorkloadRef(self.cluster, self.namespace, self.name)


def without_schema(headers: Mapping[str, str]) -> dict[str, str]:
    """The same headers of a message whose schema is to be taken for a known one."""
    return {name: value for name, value in headers.items() if name != SCHEMA_VERSION}


def _is_known(version: str, known: int) -> bool:
    """False also for a text that is no number: only a newer release can have given it a meaning."""
    number = whole_number(version)
    return number is not None and number <= known
