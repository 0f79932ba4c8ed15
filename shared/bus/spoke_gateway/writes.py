"""Writes for the spokes: publishes each message under its own subject once the spoke's budget has room.

A spoke has a connection of its own here and, for each log that it writes, a lane: a queue, a budget and a
share of the view. So what one spoke writes delays neither another spoke nor its own reports about work that
has ended. The server's answer goes back to the spoke, with the sequence in the log: its fences and retries
work as for any writer. Nothing is lost here: what was not answered, its writer sends again.
"""

import asyncio
import json
import re
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from shared.bus import headers as wire
from shared.bus.admin.accounts import GATEWAY, WRITE
from shared.bus.admin.permissions import spoke_writes, spokes_among
from shared.bus.filters import covers
from shared.bus.nats.bus import NatsBus
from shared.bus.nats.jetstream_api import Json, ask, call
from shared.bus.port import BusError
from shared.bus.spoke_gateway.budget import Budget, Limits
from shared.bus.spoke_gateway.refusals import GatewayRule
from shared.bus.spoke_gateway.shares import ViewShare
from shared.bus.spoke_gateway.sizes import ConfigurationShare, most_bytes
from shared.bus.streams import load
from shared.contracts.messages.observed import Observed

log = structlog.get_logger(__name__)

QUEUE_MAX: Final = 2048
QUEUE_BYTES_MAX: Final = 20 << 20
"""Of the lane of what a spoke observes. A publisher of ours has at most 512 messages and 16 MiB on the way:
they always fit."""

OTHER_BYTES_MAX: Final = 4 << 20
"""Of each other lane: outcomes, reports and heartbeats are small."""

UNANSWERED_MAX: Final = 10_000
"""Messages of one spoke whose answer is waited for."""

REST_SECONDS: Final = 1.0
"""A lane whose queue is full is deaf for so long: the server drops what is sent to it, at no cost here."""

SPOKES_SECONDS: Final = 10.0
"""How often the server is asked which spokes it knows."""

EVERY_SPOKE: Final = "*"
"""The only token where the server does not name the spokes: it has no users."""

FULL: Final = 10077
"""JetStream's code for a full stream: a writer of ours tries again later, and says why it waits."""

REFUSED: Final = 403

_INFO: Final = "Nats-Request-Info"
"""The server adds it on the way from one account to another."""

HEADERS: Final = frozenset(map(str.casefold, (wire.MESSAGE_ID, wire.EXPECT_SUBJECT, _INFO)))
"""What a spoke may ask the server for by a header. By others the server would tell how far subjects of others
are, keep what is not committed, or publish and delete by itself."""

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header's name in HTTP, which has no other characters either."""


class SpokeWrites:
    """All lanes of all spokes, for as long as it runs."""

    def __init__(self, bus: NatsBus) -> None:
        self._bus = bus
        self._spokes: set[str] = set()

    async def run(self) -> None:
        """Write until cancelled."""
        serving: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                self._spokes = await self._known_spokes()
                for token in self._spokes - serving.keys():
                    one = SpokeConnection(self._bus, token, spokes=lambda: len(self._spokes))
                    serving[token] = asyncio.create_task(one.run())
                for token in serving.keys() - self._spokes:
                    serving.pop(token).cancel()
                await asyncio.sleep(SPOKES_SECONDS)
                for token in [token for token, task in serving.items() if task.done()]:
                    log.error(
                        "writing for a spoke failed",
                        spoke=token,
                        exc_info=serving[token].exception(),
                    )
                    del serving[token]
        finally:
            for task in serving.values():
                task.cancel()
            await asyncio.gather(*serving.values(), return_exceptions=True)

    async def _known_spokes(self) -> set[str]:
        """Tokens of the spokes for which the server lets us publish. Without an answer: those of before."""
        try:
            answer = await ask(
                self._bus.connection.nc, "$SYS.REQ.USER.INFO", b"", timeout_seconds=5
            )
        except (NatsError, BusError) as error:
            log.warning("cannot ask which spokes there are", error=str(error))
            return self._spokes
        found = json.loads(answer.data).get("data", {}).get("permissions")
        if not found or ">" in found.get("publish", {}).get("allow", (">",)):
            return {EVERY_SPOKE}
        return spokes_among(found["publish"]["allow"])


class SpokeConnection:
    """The connection that is one spoke's, and its lanes."""

    def __init__(self, bus: NatsBus, token: str, *, spokes: Callable[[], int]) -> None:
        self._bus = bus
        self._token = token
        self._spokes = spokes
        self._connection = bus.connection.another(f"{bus.instance}-{token}")
        self._answers: dict[int, str] = {}
        """Number of a message on its way to where its answer goes."""

        self._count = 0
        self._inbox = ""
        self._answering_on: Client | None = None

    async def run(self) -> None:
        """Write for this spoke until cancelled."""
        await self._connection.open()
        lanes = [_Lane(self, self._bus, pattern, spokes=self._spokes) for pattern in spoke_writes()]
        try:
            async with asyncio.TaskGroup() as group:
                for lane in lanes:
                    group.create_task(lane.listen())
                    group.create_task(lane.forward())
        finally:
            await self._connection.close()

    @property
    def token(self) -> str:
        """The spoke's name as subjects have it."""
        return self._token

    async def client(self) -> Client:
        """The client, once the server answers and answers can come."""
        await self._connection.wait_ready()
        nc = self._connection.nc
        if nc is not self._answering_on:
            self._inbox = nc.new_inbox() + "."
            await nc.subscribe(f"{self._inbox}*", cb=self._on_answer)
            self._answering_on = nc
        return nc

    async def publish(self, message: Msg, subject: str) -> None:
        """Publish it, and let the server answer its sender."""
        nc = await self.client()
        reply = ""
        if message.reply:
            self._count += 1
            self._answers[self._count] = message.reply
            reply = f"{self._inbox}{self._count}"
            if len(self._answers) > UNANSWERED_MAX:
                del self._answers[next(iter(self._answers))]
        await nc.publish(subject, message.data, reply, message.headers)

    async def answer(self, message: Msg, body: Json) -> None:
        """Answer it in the server's place."""
        if message.reply:
            nc = await self.client()
            await nc.publish(message.reply, json.dumps(body).encode())

    async def _on_answer(self, message: Msg) -> None:
        to = self._answers.pop(int(message.subject[len(self._inbox) :]), None)
        if to is not None and self._connection.ready:
            with suppress(NatsError):  # Its writer sends it again, and is told that it is stored.
                await self._connection.nc.publish(to, message.data)


class _Lane:
    """What one spoke writes to one log, in its order."""

    def __init__(
        self, connection: SpokeConnection, bus: NatsBus, pattern: str, *, spokes: Callable[[], int]
    ) -> None:
        self._connection = connection
        self._bus = bus
        self._pattern = pattern
        """With ``{cluster}`` in the place of the spoke."""

        self._spokes = spokes
        self._log = _log_of(_named(pattern, connection.token))
        self._bytes_max = QUEUE_BYTES_MAX if self._log == Observed.stream else OTHER_BYTES_MAX
        self._queue: deque[Msg] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._overrun = asyncio.Event()
        self._budgets: dict[str, Budget] = {}
        self._shares: dict[str, ViewShare] = {}
        self._configurations: dict[str, ConfigurationShare] = {}
        self._logged: set[str] = set()

    async def listen(self) -> None:
        """Take in what the spoke writes; rest while the queue is full."""
        token = self._connection.token
        subject = f"{GATEWAY}.{token}.{WRITE}.{_named(self._pattern, token)}"
        while True:
            try:
                nc = await self._connection.client()
                subscription = await nc.subscribe(subject, cb=self._on_message)
                while not self._overrun.is_set() and nc is await self._connection.client():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(REST_SECONDS):
                            await self._overrun.wait()
                await subscription.unsubscribe()
            except NatsError as error:
                log.debug("cannot listen to a spoke", subject=subject, error=repr(error))
            await asyncio.sleep(REST_SECONDS if self._overrun.is_set() else 0)
            self._overrun.clear()

    async def _on_message(self, message: Msg) -> None:
        if len(self._queue) >= QUEUE_MAX or self._bytes > self._bytes_max:
            if not self._overrun.is_set():
                token = self._connection.token
                self._log_refusal(GatewayRule.TOO_FAST, spoke=token, most=QUEUE_MAX)
                self._overrun.set()
            return
        self._queue.append(message)
        self._bytes += len(message.data)
        self._arrived.set()

    async def forward(self) -> None:
        """Write what is in the queue, at the pace of the budget."""
        while True:
            while not self._queue:
                self._arrived.clear()
                await self._arrived.wait()
            message = self._queue.popleft()
            self._bytes -= len(message.data)
            try:
                await self._write(message)
            except (NatsError, BusError) as error:
                # Its writer has no answer, and sends it again.
                log.warning(
                    "a message of a spoke was not written",
                    subject=message.subject,
                    error=str(error),
                )

    async def _write(self, message: Msg) -> None:
        _, _, token, _, subject = message.subject.split(".", 4)
        size = len(subject) + len(message.data) + _header_bytes(message)
        loop = asyncio.get_running_loop()
        if (foreign := _foreign_header(message)) is not None:
            return await self._refuse(message, GatewayRule.HEADER, code=REFUSED, header=foreign)
        if (most := most_bytes(subject)) is not None and size > most:
            values = {"spoke": token, "what": subject.split(".")[-1], "size": size, "most": most}
            return await self._refuse(message, GatewayRule.SIZE, code=REFUSED, **values)
        budget = self._budgets.get(token) or await self._budget(token, loop.time())
        if budget.lacks(size, loop.time()):
            return await self._refuse(message, GatewayRule.PART, spoke=token)
        await asyncio.sleep(budget.wait(loop.time()))
        if crowded := await self._share(token).refusal(subject, size, loop.time()):
            return await self._refuse(message, GatewayRule.SHARE, spoke=token, problem=crowded)
        if too_much := await self._configuration(token).refusal(subject, size, loop.time()):
            return await self._refuse(
                message, GatewayRule.CONFIGURATION, spoke=token, problem=too_much
            )
        budget.charge(size)
        return await self._connection.publish(message, subject)

    async def _budget(self, token: str, now: float) -> Budget:
        info = await call(self._bus.connection.nc, f"STREAM.INFO.{self._log}")
        hours = load().spoke_hours(self._log)
        limits = Limits(log_bytes=int(info["config"]["max_bytes"]), hours=hours)
        return self._budgets.setdefault(token, Budget(limits, now))

    def _share(self, token: str) -> ViewShare:
        if token not in self._shares:
            own = _named(self._pattern, token)
            self._shares[token] = ViewShare(self._bus, self._log, own, spokes=self._spokes)
        return self._shares[token]

    def _configuration(self, token: str) -> ConfigurationShare:
        if token not in self._configurations:
            self._configurations[token] = ConfigurationShare(self._bus, token)
        return self._configurations[token]

    async def _refuse(
        self, message: Msg, rule: GatewayRule, *, code: int = FULL, **values: object
    ) -> None:
        text = self._log_refusal(rule, log=self._log, **values)
        error = {"code": 503, "err_code": code, "description": text}
        await self._connection.answer(message, {"error": error, "stream": self._log, "seq": 0})

    def _log_refusal(self, rule: GatewayRule, **values: object) -> str:
        """Count it, and log it once for each lane and reason; return what the spoke is told."""
        rule.count()
        text = rule.says(**values)
        if rule.label not in self._logged:
            self._logged.add(rule.label)
            log.warning(
                "a spoke was refused", spoke=self._connection.token, why=rule.label, detail=text
            )
        return text


def _named(pattern: str, token: str) -> str:
    return pattern.replace("{cluster}", token)


def _log_of(pattern: str) -> str:
    logs = load().logs.items()
    return next(name for name, each in logs if any(covers(one, pattern) for one in each.subjects))


def _foreign_header(message: Msg) -> str | None:
    """The name, cut short, of a header that asks the server for what no spoke may ask; or None.

    nats-py takes white space of any kind off a name when it publishes it: a name is a token, or refused.
    """
    headers = (message.headers or {}).items()
    asks = (name for name, value in headers if not _NAME.fullmatch(name) or not value.isprintable())
    plain = ((name, name.casefold()) for name, _ in headers)
    foreign = (name for name, one in plain if one.startswith("nats-") and one not in HEADERS)
    return next((repr(name[:80])[1:-1] for name in (*asks, *foreign)), None)


def _header_bytes(message: Msg) -> int:
    return sum(len(name) + len(value) + 4 for name, value in (message.headers or {}).items())
