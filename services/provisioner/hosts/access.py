"""Makes a TaskRun's user on the host of its slot, and removes the user at the end.

The private key is made here, delivered to where the TaskRun can fetch it, and dropped: it is in no record
and no log. After a crash a new key is made, and the host no longer accepts the old one.
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

from services.provisioner.allocation.ledger import HostSlot
from services.provisioner.allocation.results import (
    HostCleaned,
    HostPrepared,
    HostReport,
    HostUnusable,
)
from services.provisioner.config.systems import System, build_user_of, system_of
from services.provisioner.hosts.port import HostError, HostRefusedError, Hosts, HostTarget
from shared.contracts.multi_platform import PRIVATE_KEY
from shared.contracts.seal import KEY_BYTES, Entropy, host_context, seal

log = structlog.get_logger(__name__)

SEAL_KEY_RETRY_SECONDS: Final = 1.0
CLEAN_RETRY_SECONDS_MAX: Final = 60.0
"""Longest pause between two cleanings: a key that was corrected in a Secret is seen without a message."""


class KeyDelivery(Protocol):
    """How a TaskRun gets its private key."""

    async def deliver(self, private_key: bytes) -> Mapping[str, str]:
        """Returns what the TaskRun's secret must contain. Raises `BusError` if the key cannot be stored."""


class SecretKeyDelivery:
    """The secret contains the key itself. Used without one-time password service."""

    async def deliver(self, private_key: bytes) -> Mapping[str, str]:
        """The key, under the name that the build script copies."""
        return {PRIVATE_KEY: private_key.decode()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Time-outs and intervals of actions on hosts."""

    call_seconds: float
    """An action that takes longer has failed."""

    retry_seconds: float
    prepare_timeout_seconds: float
    """A host that cannot be prepared for so long is given up for this TaskRun."""

    clean_timeout_seconds: float
    """A user that cannot be removed for so long stays. Its key expires after `key_life_seconds`."""

    key_life_seconds: float


class HostAccessController:
    """Prepares and cleans the host of one slot, as the slot's state says.

    Reports go to `report`. The next round of allocation decides what follows from them, and the new
    state of the slot comes back through `update`.
    """

    def __init__(
        self,
        *,
        cluster: str,
        platform: str,
        slot: HostSlot,
        hosts: Hosts,
        keys: KeyDelivery,
        entered: bool,
        is_user_shared: Callable[[HostSlot], bool],
        seal_key: Callable[[], str | None],
        report: Callable[[str, HostReport], None],
        policy: RetryPolicy,
        now: Callable[[], datetime],
        entropy: Entropy,
    ) -> None:
        """`entered`: whether an earlier controller may have made the user.

        `is_user_shared`: whether another slot has the user of a slot on the same host, so that it must
        stay. `seal_key`: public key of the cluster's patcher, None if it has not published one.
        """
        self._cluster = cluster
        self._platform = platform
        self._slot: HostSlot | None = slot
        self._hosts = hosts
        self._keys = keys
        self._entered = entered
        self._is_user_shared = is_user_shared
        self._seal_key = seal_key
        self._report = report
        self._policy = policy
        self._now = now
        self._entropy = entropy
        self._changed = asyncio.Event()

    def update(self, slot: HostSlot | None) -> None:
        """Set the state of the slot; None if the slot is free."""
        if slot != self._slot:
            self._slot = slot
            self._changed.set()

    async def run(self) -> None:
        """Work until the slot is free."""
        while self._slot is not None:
            self._changed.clear()
            match self._slot.state:
                case "preparing":
                    await self._prepare(self._slot)
                case "cleaning":
                    await self._clean(self._slot)
                case "held" | "ready":
                    pass
            await self._changed.wait()

    async def _prepare(self, slot: HostSlot) -> None:
        target, started = self._target(slot), self._time()
        while not self._changed.is_set():
            recipient = self._seal_key()
            if recipient is None:
                log.warning("the patcher has published no key yet; no host can be prepared")
                await self._pause(SEAL_KEY_RETRY_SECONDS)
                started = self._time()
                continue
            try:
                async with asyncio.timeout(self._policy.call_seconds):
                    private_key = await self._private_key(target)
            except HostRefusedError as error:
                log.error("a host refuses access", host=slot.host, error=str(error))
                self._report_unusable(slot, error.reason)
                return
            except (HostError, TimeoutError) as error:
                # After a time-out nobody knows how far it came.
                self._entered |= not isinstance(error, HostError) or error.entered
                reason = _reason(error)
                log.warning("a host was not prepared", host=slot.host, error=reason)
                if self._time() - started >= self._policy.prepare_timeout_seconds:
                    self._report_unusable(slot, reason)
                    return
                await self._pause(self._policy.retry_seconds)
                continue
            self._entered = True
            secret = await self._keys.deliver(private_key)
            context = host_context(
                cluster=self._cluster, namespace=slot.namespace, name=slot.name, uid=slot.uid
            )
            content = json.dumps(dict(secret)).encode()
            sealed = seal(content, to=recipient, context=context, entropy=self._entropy)
            self._report(slot.uid, HostPrepared(sealed=sealed))
            return

    def _report_unusable(self, slot: HostSlot, reason: str) -> None:
        self._report(slot.uid, HostUnusable(reason=reason, entered=self._entered))

    async def _private_key(self, target: HostTarget) -> bytes:
        """A key that the host accepts for the TaskRun from now on."""
        if target.system is not System.LINUX:
            return await self._hosts.read_key(target)
        private, public = self._key_pair()
        expires_at = self._now() + timedelta(seconds=self._policy.key_life_seconds)
        await self._hosts.prepare(target, public_key=public, expires_at=expires_at)
        return private

    async def _clean(self, slot: HostSlot) -> None:
        target, started, pause = self._target(slot), self._time(), self._policy.retry_seconds
        while not self._changed.is_set():
            if not self._entered:
                self._report(slot.uid, HostCleaned())
                return
            if self._is_user_shared(slot):
                log.info("a user stays: another slot has it", host=slot.host, user=slot.user)
                self._report(slot.uid, HostCleaned())
                return
            try:
                async with asyncio.timeout(self._policy.call_seconds):
                    await self._hosts.clean(target)
            except (HostError, TimeoutError) as error:
                given_up = self._time() - started >= self._policy.clean_timeout_seconds
                log.warning(
                    "a host was not cleaned",
                    host=slot.host,
                    error=_reason(error),
                    given_up=given_up,
                )
                if not given_up:
                    await self._pause(pause)
                    pause = min(2 * pause, CLEAN_RETRY_SECONDS_MAX)
                    continue
                self._report(slot.uid, HostCleaned(given_up=True))
                return
            self._report(slot.uid, HostCleaned())
            return

    def _target(self, slot: HostSlot) -> HostTarget:
        assert slot.access is not None, "a slot without access needs no controller"
        user = build_user_of(self._platform, user=slot.user).user
        return HostTarget(
            host=slot.host,
            address=slot.address,
            access=slot.access,
            user=user,
            system=system_of(self._platform),
        )

    async def _pause(self, seconds: float) -> None:
        """Wait `seconds`, or until the slot changes."""
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
    if isinstance(error, HostError):
        return error.reason
    return str(error) or "no answer in time"
