"""What the provisioner needs from a cloud: `Provider`. `tests/contract/providers` checks each one."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import wraps
from typing import Any, Final, Protocol, TypeVar, cast

from services.provisioner.config.parameter_rules import ParameterRules

_Call = TypeVar("_Call", bound=Callable[..., Coroutine[Any, Any, Any]])

_UNEXPECTED: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What comes of an answer in another form."""


PAGES_MAX: Final = 100
"""Of a list: at least 10,000 machines."""

ENDLESS: Final = "the list of the cloud has no end"

ANSWER_BYTES_MAX: Final = 8 << 20
"""Of one answer: a page with some thousand machines. The provisioner may have 256 MiB."""


class ByteStream(Protocol):
    """What is read of an answer."""

    async def readany(self) -> bytes:
        """Some bytes; none at the end."""


async def read_bounded(stream: ByteStream) -> bytes:
    """The bytes of an answer. Raises `ValueError` for more than `ANSWER_BYTES_MAX`."""
    found = bytearray()
    while data := await stream.readany():
        found += data
        if len(found) > ANSWER_BYTES_MAX:
            text = f"the answer is none of the cloud: it has more than {ANSWER_BYTES_MAX} bytes"
            raise ValueError(text)
    return bytes(found)


class VmState(StrEnum):
    """States of a machine. A provider maps its own states onto these."""

    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"
    """The machine will never run. It must be terminated all the same."""

    GONE = "gone"
    """The machine is terminated and costs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order of one machine."""

    name: str
    """Unique. Ordering the same name twice gives one machine."""

    owner: str
    """Cluster whose TaskRuns use the machine. It must differ for installations that share an account."""

    platform: str
    tag: str
    """The platform's instance tag, by which operators find and bill machines."""

    tags: Mapping[str, str]
    """All tags of the machine, `tag` included."""

    parameters: Mapping[str, str]
    """The keys `dynamic.<platform>.…` of the host configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vm:
    """A machine as the provider reports it at this moment."""

    name: str
    state: VmState
    address: str = ""
    """Empty until the machine can be reached."""

    launched_at: datetime | None = None
    """None if the provider does not report it."""


class ProviderError(Exception):
    """A call failed for an unknown reason. It may have had its effect. A few retries are worthwhile."""

    def __init__(self, provider: str, action: str, name: str, reason: str) -> None:
        super().__init__(f"{provider}: cannot {action} {name}: {reason}")
        self.reason = reason


class ProviderBusyError(ProviderError):
    """The provider throttles or has no capacity. A later retry will succeed."""


class ProviderRefusedError(ProviderError):
    """The provider refuses the call (no such image, no permission). A retry cannot succeed."""


def check_parameters(provider: str, order: Order, rules: ParameterRules) -> None:
    """Raises `ProviderRefusedError` if the parameters of `order` break a rule."""
    error = rules.first_error(order.parameters)
    if error is not None:
        raise ProviderRefusedError(provider, "launch", order.name, f"dynamic.….{error}")


def translates_answers(provider: str) -> Callable[[_Call], _Call]:
    """Decorate a call of a provider, so that an answer without what it must have is a `ProviderError`.

    A proxy's page or a changed API must not look like a defect of ours.
    """

    def decorate(call: _Call) -> _Call:
        @wraps(call)
        async def translated(self: Any, asked: Any) -> Any:
            try:
                return await call(self, asked)
            except _UNEXPECTED as error:
                name = asked if isinstance(asked, str) else asked.name
                text = f"the answer is none of the cloud: {error!r}"
                raise ProviderError(provider, call.__name__, name, text) from error

        return cast("_Call", translated)

    return decorate


class Provider(Protocol):
    """One account of one cloud. Every call is idempotent in the name, and raises `ProviderError`."""

    async def launch(self, order: Order) -> None:
        """Order the machine. Does nothing if a machine of that name exists or existed."""

    async def find(self, name: str) -> Vm | None:
        """The machine as it is now; None if the provider knows no such name."""

    async def list_owned(self, owner: str) -> Sequence[Vm]:
        """All machines that were ordered for `owner` and are not gone. Never those of another owner."""

    async def terminate(self, name: str) -> None:
        """Start terminating the machine, until `find` shows it gone. Does nothing if it never existed."""

    async def close(self) -> None:
        """Close all connections. No call follows."""
