"""JetStream's JSON API by plain requests: only the calls that we make, errors by code.

nats-py wraps the same calls, but drops fields that it does not know and turns errors into classes
by HTTP-like code, where what matters is `err_code`.
"""

import json
from typing import Any, Final

from nats.aio.client import Client
from nats.errors import ConnectionClosedError, NoRespondersError
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeoutError

from shared.bus.nats.cancellation import cancellable
from shared.bus.port import BusError, UnavailableError

STREAM_NOT_FOUND: Final = 10059
CONSUMER_NOT_FOUND: Final = 10014
MESSAGE_NOT_FOUND: Final = 10037
WRONG_LAST_SEQUENCE: Final = 10071

TIMEOUT_SECONDS: Final = 5.0

Json = dict[str, Any]


class ApiError(BusError):
    """JetStream refused a request."""

    def __init__(self, what: str, code: int, description: str) -> None:
        super().__init__(f"{what}: {description} ({code})")
        self.code = code
        """`err_code` of nats-server's `errors.json`."""


async def call(
    nc: Client, what: str, body: Json | None = None, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> Json:
    """Send a request to ``$JS.API.<what>``. Raises `ApiError` or, without answer, `UnavailableError`."""
    payload = b"" if body is None else json.dumps(body).encode()
    try:
        with cancellable():
            reply = await nc.request(f"$JS.API.{what}", payload, timeout=timeout_seconds)
    except NoRespondersError as error:
        raise UnavailableError(f"{what}: no JetStream answers (is it enabled, and up?)") from error
    except (NatsTimeoutError, ConnectionClosedError) as error:
        raise UnavailableError(f"{what}: no answer within {timeout_seconds:g} s") from error
    except NatsError as error:
        raise UnavailableError(f"{what}: {error}") from error
    answer: Json = json.loads(reply.data)
    if (problem := answer.get("error")) is not None:
        raise ApiError(what, problem.get("err_code", 0), problem.get("description", "refused"))
    return answer
