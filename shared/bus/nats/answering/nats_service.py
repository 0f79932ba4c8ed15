"""A service as NATS's own tools know it: `nats micro ls`, `info` and `stats` find it (ADR-32 of NATS).

Who serves says what it answers and where; who looks finds out by asking ``$SRV.PING``, ``INFO`` and
``STATS``, of all services, of those of one name, or of one instance. Each instance answers those for
itself; of what a service is there to answer, one of its instances is asked.
"""

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from shared.bus.port import AnswerError, Bus, BusError

log = structlog.get_logger(__name__)

PREFIX: Final = "$SRV"
QUEUE: Final = "q"
RETRY_SECONDS: Final = 1.0

Answer = Callable[[bytes], Awaitable[bytes]]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One question that a service answers."""

    name: str
    """Letters, digits, ``-`` and ``_``."""

    subject: str
    answer: Answer
    about: str = ""
    """One sentence, sent as metadata."""


@dataclass(slots=True)
class _Figures:
    """What was done for one endpoint since it is served."""

    requests: int = 0
    errors: int = 0
    last_error: str = ""
    seconds: float = 0.0

    def failed(self, how: str) -> None:
        """Count an error; `how` is ``<code>:<text>``."""
        self.errors += 1
        self.last_error = how


@dataclass(kw_only=True)
class NatsService:
    """Answers requests to its endpoints, and discovery requests of NATS services."""

    name: str
    version: str
    """Semantic: three numbers."""

    description: str
    endpoints: tuple[Endpoint, ...]
    started: datetime
    metadata: dict[str, str] = field(default_factory=dict)
    identity: str = field(default_factory=lambda: str(uuid.uuid4()))
    """One for each instance."""

    _figures: dict[str, _Figures] = field(default_factory=dict)

    async def serve(self, bus: Bus) -> None:
        """Answer until cancelled; then let others do it."""
        withdrawals: list[Callable[[], Awaitable[None]]] = []
        try:
            for endpoint in self.endpoints:
                self._figures[endpoint.name] = _Figures()
                counted = self._counted(endpoint)
                withdrawals.append(await _begin(bus, endpoint.subject, counted, alone=True))
            for verb, answer in (("PING", self.ping), ("INFO", self.info), ("STATS", self.stats)):
                for place in ("", f".{self.name}", f".{self.name}.{self.identity}"):
                    reply = _saying(answer)
                    subject = f"{PREFIX}.{verb}{place}"
                    withdrawals.append(await _begin(bus, subject, reply, alone=False))
            await asyncio.Event().wait()
        finally:
            for withdraw in withdrawals:
                await withdraw()

    def _counted(self, endpoint: Endpoint) -> Answer:
        figures = self._figures[endpoint.name]

        async def answer(data: bytes) -> bytes:
            loop = asyncio.get_running_loop()
            began = loop.time()
            figures.requests += 1
            try:
                return await endpoint.answer(data)
            except AnswerError as error:
                figures.failed(f"{error.code}:{error}")
                raise
            except Exception:
                figures.failed("500:its log says why")  # The text may hold secrets.
                raise
            finally:
                figures.seconds += loop.time() - began

        return answer

    def ping(self) -> Json:
        """The answer to ``$SRV.PING``."""
        return self._common("ping")

    def info(self) -> Json:
        """What it answers, and where."""
        endpoints = [
            {**_place(endpoint), "metadata": {"about": endpoint.about} if endpoint.about else {}}
            for endpoint in self.endpoints
        ]
        return {
            **self._common("info"),
            "description": self.description,
            "endpoints": endpoints,
        }

    def stats(self) -> Json:
        """Number of requests and their processing time in nanoseconds."""
        endpoints = []
        for endpoint in self.endpoints:
            figures = self._figures.get(endpoint.name, _Figures())
            spent = int(figures.seconds * 1e9)
            endpoints.append(
                {
                    **_place(endpoint),
                    "num_requests": figures.requests,
                    "num_errors": figures.errors,
                    "last_error": figures.last_error,
                    "processing_time": spent,
                    "average_processing_time": spent // max(1, figures.requests),
                    "data": {},
                }
            )
        # With a fraction, also where it is zero: NATS's Python library reads no other form.
        started = f"{self.started.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
        return {**self._common("stats"), "started": started, "endpoints": endpoints}

    def _common(self, what: str) -> Json:
        return {
            "type": f"io.nats.micro.v1.{what}_response",
            "name": self.name,
            "id": self.identity,
            "version": self.version,
            "metadata": self.metadata,
        }


def _place(endpoint: Endpoint) -> Json:
    return {"name": endpoint.name, "subject": endpoint.subject, "queue_group": QUEUE}


def _saying(what: Callable[[], Json]) -> Answer:
    async def answer(_data: bytes) -> bytes:
        return json.dumps(what()).encode()

    return answer


async def _begin(
    bus: Bus, subject: str, answer: Answer, *, alone: bool
) -> Callable[[], Awaitable[None]]:
    """Retry until the bus is connected: a service works also while it cannot answer requests."""
    while True:
        try:
            return await bus.respond(subject, answer, alone=alone)
        except BusError as error:
            log.warning(
                "cannot answer requests yet; trying again", subject=subject, error=str(error)
            )
            await asyncio.sleep(RETRY_SECONDS)
