"""Makes a TaskRun's user on the host where it has a place, and removes it at the end.

The private key is made here, is put where its TaskRun may fetch it, and is forgotten: it is in no
record and no log. After a crash a new pair is made, and the host lets the old one in no more.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from services.provisioner.allocation.ledger import Seat
from services.provisioner.allocation.results import Cleaned, Prepared, SeatReport, Unusable
from services.provisioner.config.systems import System, builder_of, system_of
from services.provisioner.hosts.port import (
    HostError,
    HostRefusedError,
    Hosts,
    HostUnreachableError,
    Place,
)
from shared.contracts.seal import KEY_BYTES, Entropy, seal

__all__ = ["InSecret", "Keys", "Manners", "Usher", "sealing_context"]

log = structlog.get_logger(__name__)

WAIT_FOR_PATCHER_SECONDS: Final = 1.0


class Keys(Protocol):
    """How a TaskRun gets its private key."""

    async def hand_over(self, private_key: bytes) -> Mapping[str, str]:
        """Return what its secret must hold for that. Raises `BusError` where it cannot be kept."""


class InSecret:
    """The key itself is in the secret: where there is no one-time password service."""

    async def hand_over(self, private_key: bytes) -> Mapping[str, str]:
        """The key, under the name that the script copies."""
        return {"id_rsa": private_key.decode()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How patient it is, in seconds."""

    call: float
    """One visit to a host that takes longer has failed."""

    retry: float
    patience: float
    """A host that cannot be prepared for so long is given up, for this TaskRun."""

    clean_patience: float
    """A user that cannot be removed for so long stays; its key lets nobody in after `key_life`."""

    key_life: float


def sealing_context(*, cluster: str, namespace: str, name: str, uid: str) -> str:
    """What a sealed secret is for: no other TaskRun's opens with it."""
    return f"host/{cluster}/{namespace}/{name}/{uid}"


class Usher:
    """One place's errand, from when it is given until it is free."""

    def __init__(
        self,
        *,
        cluster: str,
        platform: str,
        seat: Seat,
        hosts: Hosts,
        keys: Keys,
        seal_key: Callable[[], str | None],
        report: Callable[[str, SeatReport], None],
        manners: Manners,
        now: Callable[[], datetime],
        entropy: Entropy,
    ) -> None:
        self._cluster = cluster
        self._platform = platform
        self._seat: Seat | None = seat
        self._hosts = hosts
        self._keys = keys
        self._seal_key = seal_key
        self._report = report
        self._manners = manners
        self._now = now
        self._entropy = entropy
        self._changed = asyncio.Event()

    def update(self, seat: Seat | None) -> None:
        """The record changed; None: the place is free."""
        if seat != self._seat:
            self._seat = seat
            self._changed.set()

    async def run(self) -> None:
        """Until the place is free."""
        while self._seat is not None:
            self._changed.clear()
            match self._seat.state:
                case "preparing":
                    await self._prepare(self._seat)
                case "cleaning":
                    await self._clean(self._seat)
                case "held" | "ready":
                    pass
            await self._changed.wait()

    async def _prepare(self, seat: Seat) -> None:
        place, began = self._place(seat), self._time()
        while not self._changed.is_set():
            reader = self._seal_key()
            if reader is None:
                log.warning("no patcher has published its key; nothing can be handed over")
                await self._pause(WAIT_FOR_PATCHER_SECONDS)
                began = self._time()
                continue
            try:
                async with asyncio.timeout(self._manners.call):
                    private = await self._private_key(place)
            except HostRefusedError as error:
                log.error("host refused", host=seat.host, error=str(error))
                self._report(seat.uid, Unusable(reason=error.reason))
                return
            except (HostError, TimeoutError) as error:
                reason = _reason(error)
                log.warning("host not prepared", host=seat.host, error=reason)
                if self._time() - began >= self._manners.patience:
                    self._report(seat.uid, Unusable(reason=reason))
                    return
                await self._pause(self._manners.retry)
                continue
            secret = await self._keys.hand_over(private)
            context = sealing_context(
                cluster=self._cluster, namespace=seat.namespace, name=seat.name, uid=seat.uid
            )
            content = json.dumps(dict(secret)).encode()
            box = seal(content, to=reader, context=context, entropy=self._entropy)
            self._report(seat.uid, Prepared(sealed=box))
            return

    async def _private_key(self, place: Place) -> bytes:
        """The key that opens the host for the TaskRun, from now on."""
        if place.system is not System.LINUX:
            return await self._hosts.take_key(place)
        private, public = self._key_pair()
        expires_at = self._now() + timedelta(seconds=self._manners.key_life)
        await self._hosts.prepare(place, public_key=public, expires_at=expires_at)
        return private

    async def _clean(self, seat: Seat) -> None:
        place, began, pause = self._place(seat), self._time(), self._manners.retry
        while not self._changed.is_set():
            try:
                async with asyncio.timeout(self._manners.call):
                    await self._hosts.clean(place)
            except (HostError, TimeoutError) as error:
                given_up = self._time() - began >= self._manners.clean_patience
                log.warning(
                    "host not cleaned", host=seat.host, error=_reason(error), given_up=given_up
                )
                if not given_up:
                    await self._pause(pause)
                    pause = min(2 * pause, self._manners.clean_patience)
                    continue
                self._report(seat.uid, Cleaned(given_up=True))
                return
            self._report(seat.uid, Cleaned())
            return

    def _place(self, seat: Seat) -> Place:
        assert seat.access is not None, "nobody is sent where nobody has to go"
        builder = builder_of(self._platform, namespace=seat.namespace, name=seat.name)
        return Place(
            host=seat.host,
            address=seat.address,
            access=seat.access,
            user=builder.user,
            system=system_of(self._platform),
        )

    async def _pause(self, seconds: float) -> None:
        """Wait, less long if the record changes."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def _key_pair(self) -> tuple[bytes, str]:
        key = Ed25519PrivateKey.from_private_bytes(self._entropy(KEY_BYTES))
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        return private, public.decode()

    @staticmethod
    def _time() -> float:
        return asyncio.get_running_loop().time()


def _reason(error: Exception) -> str:
    match error:
        case HostUnreachableError() | HostRefusedError():
            return error.reason
        case _:
            return str(error) or "no answer in time"
