"""Checks JetStream requests of spokes before it forwards them.

NATS grants permissions by subject. What a request for a consumer or a message is about is in its body,
which NATS does not check: a user who may create consumers can read everything, and one who may choose
where an answer goes lets the server publish to any subject of its account. Therefore a spoke has an
account of its own (`shared.bus.admin.accounts`). Such requests go from there to this gateway and nowhere
else, and the answers come back into that account only.

A spoke may ask for the configuration of a stream without names of others, for the last message of its own
subjects, for its durable consumers, and for a few consumers to list and watch with, under names that the
gateway assigns. The gateway keeps no state, so every replica of the dispatcher may answer.
"""

import asyncio
import base64
import json
from collections import Counter
from typing import Final

import orjson
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from shared.bus import headers as wire
from shared.bus.admin.accounts import GATEWAY, SpokeAccess, spoke_access
from shared.bus.direct_read import SOURCE
from shared.bus.nats.bus import NatsBus
from shared.bus.nats.jetstream_api import MESSAGE_NOT_FOUND, ApiError, Json, call
from shared.bus.order.rulings import TERMS
from shared.bus.port import BusError
from shared.bus.spoke_gateway.refusals import GatewayRule
from shared.bus.streams import load, view_of
from shared.contracts import subjects
from shared.contracts.subjects import TERM_SUBJECT

log = structlog.get_logger(__name__)

CONSUMER_EXISTS: Final = 10148
REFUSED: Final = 403
"""As in HTTP: JetStream has no error code for missing permissions."""

REQUESTS_MAX: Final = 64
"""How many requests are answered at the same time."""

SPOKE_REQUESTS_MAX: Final = 16
"""How many of them are one spoke's: the others are answered whatever one of them sends."""

REQUEST_BYTES_MAX: Final = 64 << 10
"""A request of ours has less than a tenth. What is larger is refused before it is parsed."""

FILTERS_MAX: Final = 256
LOGGED_MAX: Final = 1000
BUSY: Final = 10008
"""JetStream's code for "temporarily unavailable": the asker tries again."""

INACTIVE_SECONDS_MAX: Final = 60
"""A spoke has few names of consumers: one that its reader left is free again after this time."""

WAIT_SECONDS: Final = 1.0

_WORK: Final = frozenset(
    (
        *("name", "durable_name", "deliver_policy", "ack_policy", "ack_wait", "max_deliver"),
        *("max_ack_pending", "replay_policy", "filter_subjects"),
    )
)
_WATCH: Final = frozenset(
    (
        *("name", "deliver_policy", "opt_start_seq", "ack_policy", "replay_policy"),
        *("mem_storage", "num_replicas", "inactive_threshold", "filter_subjects"),
    )
)
"""Fields of a consumer's configuration that a spoke may set. Never `deliver_subject`: the server would
publish there on behalf of the spoke."""


class RefusedError(Exception):
    """A request that this spoke may not make."""


class SpokeRequests:
    """Answers the requests of spokes for as long as it runs."""

    def __init__(self, bus: NatsBus) -> None:
        self._connection = bus.connection
        self._streams = load().configs()
        self._slots = asyncio.Semaphore(REQUESTS_MAX)
        self._answering: set[asyncio.Task[None]] = set()
        self._asking: Counter[str] = Counter()
        """Requests in hand of each spoke."""

        self._logged: set[tuple[str, str]] = set()
        """Spoke and reason of refusals that the log has already."""

    async def run(self) -> None:
        """Answer until cancelled. Subscribe again after each reconnection."""
        subscribed: Client | None = None
        try:
            while True:
                await self._connection.wait_ready()
                nc = self._connection.nc
                if nc is not subscribed:
                    for asked in ("STREAM", "CONSUMER"):
                        await nc.subscribe(
                            f"{GATEWAY}.*.{asked}.>", queue="doors", cb=self._on_request
                        )
                    subscribed = nc
                    log.info("the gateway answers spokes")
                await asyncio.sleep(WAIT_SECONDS)
        finally:
            for task in tuple(self._answering):
                task.cancel()

    async def _on_request(self, message: Msg) -> None:
        token = message.subject.split(".")[2]
        if len(message.data) > REQUEST_BYTES_MAX:
            text = self._refuse(token, GatewayRule.TOO_LARGE, size=len(message.data))
            await self._respond(token, message, _error(REFUSED, text))
            return
        if self._asking[token] >= SPOKE_REQUESTS_MAX:
            text = self._refuse(token, GatewayRule.TOO_MANY, subject=message.subject)
            await self._respond(token, message, _error(BUSY, text))
            return
        self._asking[token] += 1
        await self._slots.acquire()
        task = asyncio.create_task(self._answer(message))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, message: Msg) -> None:
        _, _, token, *what = message.subject.split(".")
        try:
            answer = await self._ask(spoke_access(token), what, message.data)
        except (RefusedError, ValueError, RecursionError) as error:
            answer = _error(REFUSED, self._refuse(token, GatewayRule.NOT_PERMITTED, problem=error))
        except ApiError as error:
            answer = _error(error.code, str(error))
        except BusError as error:
            log.warning("no answer for a spoke", spoke=token, error=str(error))
            return  # The spoke asks again.
        finally:
            self._slots.release()
            self._asking[token] -= 1
            if not self._asking[token]:
                del self._asking[token]
        await self._respond(token, message, answer)

    def _refuse(self, token: str, rule: GatewayRule, **values: object) -> str:
        """Count it, and log it once for each spoke and reason; return what the spoke is told."""
        rule.count()
        text = rule.says(**values)
        if (token, rule.label) not in self._logged and len(self._logged) < LOGGED_MAX:
            self._logged.add((token, rule.label))
            log.warning("a spoke was refused", spoke=token, why=rule.label, detail=text[:200])
        return text

    async def _respond(self, token: str, message: Msg, answer: Json) -> None:
        try:
            await message.respond(json.dumps(answer).encode())
        except NatsError as error:
            log.warning("a spoke was not answered", spoke=token, error=repr(error))

    async def _ask(self, spoke: SpokeAccess, what: list[str], data: bytes) -> Json:
        body = orjson.loads(data) if data.strip() else {}
        if not isinstance(body, dict):
            raise RefusedError("the body is no object")
        match what:
            case ["STREAM", "INFO", stream] if stream in self._streams and not body:
                return await call(self._connection.nc, f"STREAM.INFO.{stream}")
            case ["STREAM", "INFO", stream] if stream in spoke.views:
                return await self._subjects(spoke, stream, body)
            case ["STREAM", "MSG", "GET", stream]:
                return await self._message(spoke, stream, body)
            case ["CONSUMER", "CREATE", stream, consumer]:
                return await self._consumer(spoke, stream, consumer, body)
            case ["CONSUMER", "INFO" | "DELETE" as verb, stream, consumer] if not body:
                if consumer not in spoke.places and (
                    verb == "DELETE" or consumer not in spoke.durables.get(stream, ())
                ):
                    raise RefusedError(f"consumer {consumer} of {stream}")
                return await call(self._connection.nc, f"CONSUMER.{verb}.{stream}.{consumer}")
            case _:
                raise RefusedError(".".join(what))

    async def _subjects(self, spoke: SpokeAccess, view: str, body: Json) -> Json:
        """What a view lists of the spoke's own: its reader compares it with what it was given."""
        match body:
            case {"subjects_filter": str(asked), "offset": int()} if len(body) == 2:
                if spoke.may_watch(view, asked):
                    return await call(self._connection.nc, f"STREAM.INFO.{view}", body)
                raise RefusedError(f"subjects of {asked} in {view}")
            case _:
                raise RefusedError(f"{sorted(body)} of {view}")

    async def _message(self, spoke: SpokeAccess, stream: str, which: Json) -> Json:
        match which:
            case {"last_by_subj": ">"} if len(which) == 1 and stream in spoke.views_all:
                if stream not in spoke.views_used:
                    return _error(MESSAGE_NOT_FOUND, "no message found")
                return _bare(await self._get(stream, which))
            case {"last_by_subj": str(subject)} if len(which) == 1:
                if not spoke.may_read(stream, subject):
                    raise RefusedError(f"{subject} in {stream}")
                return await self._get(stream, which)
            case {"seq": int(), "next_by_subj": str(subject)} if len(which) == 2:
                # Terms are no secret. Without them a spoke cannot drop decisions of a replaced leader.
                asked = (stream in spoke.views and subject == TERM_SUBJECT) or (
                    view_of(stream) in spoke.views and subject == TERMS
                )
                if not asked:
                    raise RefusedError(f"{subject} in {stream}")
                return await self._get(stream, which)
            case {"seq": int()} if len(which) == 1 and stream in spoke.logs:
                found = await self._get(stream, which)
                if not spoke.may_read(stream, str(found["message"]["subject"])):
                    # The spoke checks whether its own message was stored there: it was not.
                    return _error(MESSAGE_NOT_FOUND, "no message found")
                return found
            case _:
                raise RefusedError(f"{sorted(which)} of {stream}")

    async def _get(self, stream: str, which: Json) -> Json:
        return await call(self._connection.nc, f"STREAM.MSG.GET.{stream}", which)

    async def _consumer(self, spoke: SpokeAccess, stream: str, name: str, body: Json) -> Json:
        config = body.get("config")
        if not isinstance(config, dict) or body.get("stream_name") != stream:
            raise RefusedError("a consumer without configuration")
        work = name in spoke.durables.get(stream, ())
        if unknown := config.keys() - (_WORK if work else _WATCH):
            raise RefusedError(f"a consumer with {sorted(unknown)}")
        filters = config.get("filter_subjects")
        if not isinstance(filters, list) or not filters:
            raise RefusedError(f"a consumer of all of {stream}")
        if len(filters) > FILTERS_MAX:
            raise RefusedError(f"a consumer with {len(filters)} filters, above {FILTERS_MAX}")
        for one in filters:
            if not isinstance(one, str) or not spoke.may_watch(stream, one):
                raise RefusedError(f"{one} in {stream}")
        if work:
            if config.get("name") != name or config.get("durable_name") != name:
                raise RefusedError("a consumer of two names")
            return await self._make(stream, name, config, action="")
        return await self._create_assigned(spoke, stream, name, config)

    async def _create_assigned(
        self, spoke: SpokeAccess, stream: str, asked: str, config: Json
    ) -> Json:
        """Create the consumer under the first free assigned name; the answer contains the name."""
        idle, most = config.get("inactive_threshold"), INACTIVE_SECONDS_MAX * 10**9
        config["inactive_threshold"] = (
            min(idle, most) if isinstance(idle, int) and idle > 0 else most
        )
        # Two requests with equal configuration must not get the same consumer.
        config["metadata"] = {"asked": asked}
        for place in spoke.places:
            try:
                return await self._make(stream, place, config | {"name": place}, action="create")
            except ApiError as error:
                if error.code != CONSUMER_EXISTS:
                    raise
        raise RefusedError(f"more than {len(spoke.places)} consumers to watch {stream} by")

    async def _make(self, stream: str, name: str, config: Json, *, action: str) -> Json:
        body = {"stream_name": stream, "config": config, "action": action}
        return await call(self._connection.nc, f"CONSUMER.CREATE.{stream}.{name}", body)


def _bare(answer: Json) -> Json:
    """Return the end of a view without its last message, which may belong to another spoke."""
    message = answer["message"]
    source = wire.stored_headers(message).get(SOURCE, "")
    bare = {"seq": message["seq"], "time": message["time"], "subject": subjects.ROOT, "data": ""}
    if source:
        kept = " ".join(source.split(" ")[:2])
        block = f"NATS/1.0\r\n{SOURCE}: {kept}\r\n\r\n"
        bare["hdrs"] = base64.b64encode(block.encode()).decode()
    return {"message": bare}


def _error(code: int, description: str) -> Json:
    return {"error": {"code": 403, "err_code": code, "description": description}}
