"""Private keys that are fetched once, with a password. They are stored encrypted on the bus.

The encryption key is derived from the password, which only the TaskRun's secret contains. So a reader of
the bus or its disks can read no private key, and the replicas share no secret: each can deliver each key.

1. `deliver` stores a key and returns its password.
2. `claim` reserves the key for one delivery.
3. `confirm` deletes the key after the delivery; `release` makes it available again after a failed one.
4. A claim that is neither confirmed nor released expires after `CLAIM_SECONDS`.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

import structlog
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shared.bus.follow import read, recall
from shared.bus.port import Bus, Entry, FencedError
from shared.contracts import subjects
from shared.contracts.messages.hosts import OneTimeKey
from shared.contracts.multi_platform import OTP_CA_KEY, OTP_KEY, OTP_SERVER_KEY
from shared.contracts.seal import Entropy
from shared.contracts.subjects import Stream

log = structlog.get_logger(__name__)

ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-"
PASSWORD_LENGTH: Final = 20
PASSWORD: Final = re.compile(r"[0-9A-Za-z-]{20}")
KEY_BYTES_MAX: Final = 16_384
"""The longest private key that is stored."""

CLAIM_SECONDS: Final = 15.0
"""Seconds after which an unconfirmed claim expires, so that the key can be fetched again."""

_FAIR_BYTES: Final = 256 - 256 % len(ALPHABET)
_NONCE: Final = bytes(12)
"""Constant, since each password encrypts one key once."""


class UnknownPasswordError(LookupError):
    """The password is wrong, or its key is delivered or expired. The message does not say which."""


class ClaimedError(Exception):
    """The key is being delivered at this moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A key that is being delivered."""

    private_key: bytes
    state: OneTimeKey
    sequence: int


class OneTimeKeyStore:
    """The keys of one cluster. Every replica has a store, and all stores share the bus."""

    def __init__(
        self,
        *,
        cluster: str,
        bus: Bus,
        url: str,
        authority: Callable[[], str],
        life_seconds: float,
        now: Callable[[], datetime],
        entropy: Entropy,
    ) -> None:
        """`url`: where TaskRuns fetch their keys. `authority`: PEM of its certificate authority."""
        self._cluster = cluster
        self._bus = bus
        self._url = url
        self._authority = authority
        self._validity = timedelta(seconds=life_seconds)
        self._now = now
        self._entropy = entropy

    async def deliver(self, private_key: bytes) -> Mapping[str, str]:
        """Store a key. Returns what a TaskRun's secret must contain to fetch it.

        Raises `BusError` if the key cannot be stored, ValueError if it is too long.
        """
        if len(private_key) > KEY_BYTES_MAX:
            raise ValueError(f"{len(private_key)} bytes are too many for a private key")
        password = self._password()
        now = self._now()
        box = ChaCha20Poly1305(_key(password)).encrypt(_NONCE, private_key, None)
        state = OneTimeKey(
            cluster=self._cluster,
            id=_id(password),
            state="waiting",
            box=base64.b64encode(box).decode(),
            expires_at=now + self._validity,
            at=now,
        )
        await self._bus.publish(state, expect_subject=0)
        return {OTP_KEY: password, OTP_CA_KEY: self._authority(), OTP_SERVER_KEY: self._url}

    async def claim(self, password: str) -> Claim:
        """Reserve the key of `password`. Raises `UnknownPasswordError`, `ClaimedError`."""
        if not PASSWORD.fullmatch(password):
            raise UnknownPasswordError
        now = self._now()
        subject = OneTimeKey(
            cluster=self._cluster, id=_id(password), state="waiting", expires_at=now, at=now
        ).subject
        entry = await self._bus.latest(Stream.KEYS, subject)
        state = read(entry, OneTimeKey)
        if entry is None or state is None or state.state == "delivered" or now >= state.expires_at:
            raise UnknownPasswordError
        if state.state == "claimed" and now < state.at + timedelta(seconds=CLAIM_SECONDS):
            raise ClaimedError
        try:
            box = base64.b64decode(state.box, validate=True)
            private_key = ChaCha20Poly1305(_key(password)).decrypt(_NONCE, box, None)
        except (InvalidTag, ValueError, binascii.Error) as error:
            raise UnknownPasswordError from error
        claimed = _in_state(state, "claimed", at=now)
        try:
            sequence = await self._bus.publish(claimed, expect_subject=entry.sequence)
        except FencedError as error:
            raise ClaimedError from error
        return Claim(private_key=private_key, state=claimed, sequence=sequence)

    async def confirm(self, claim: Claim) -> None:
        """Delete a delivered key. Does nothing if a later claim has the key."""
        await self._end(claim.state, claim.sequence)

    async def release(self, claim: Claim) -> None:
        """Make a key available again after a failed delivery."""
        again = _in_state(claim.state, "waiting", at=self._now())
        try:
            await self._bus.publish(again, expect_subject=claim.sequence)
        except FencedError:
            log.info("a key was fetched again before its claim was given back", id=again.id)

    async def delete_expired(self) -> int:
        """Delete keys that were not fetched in time. Returns their number."""
        expired: list[tuple[OneTimeKey, int]] = []
        now = self._now()

        def on_key(state: OneTimeKey, entry: Entry) -> None:
            if now >= state.expires_at or state.state == "delivered":
                expired.append((state, entry.sequence))

        keys = subjects.subject_filter("key", self._cluster)
        await recall(self._bus, {OneTimeKey: on_key}, filters=[keys])
        for state, sequence in expired:
            await self._end(state, sequence)
        return len(expired)

    async def _end(self, state: OneTimeKey, sequence: int) -> None:
        try:
            if state.state != "delivered":
                ended = _in_state(state, "delivered", at=self._now())
                sequence = await self._bus.publish(ended, expect_subject=sequence)
            await self._bus.purge(Stream.KEYS, state.subject, up_to=sequence)
        except FencedError:
            log.info("a key was fetched again before it was forgotten", id=state.id)

    def _password(self) -> str:
        letters: list[str] = []
        while len(letters) < PASSWORD_LENGTH:
            # Bytes beyond a multiple of the alphabet's length would make some letters more likely.
            fair = [byte for byte in self._entropy(PASSWORD_LENGTH) if byte < _FAIR_BYTES]
            letters += [ALPHABET[byte % len(ALPHABET)] for byte in fair]
        return "".join(letters[:PASSWORD_LENGTH])


def _in_state(
    state: OneTimeKey, new: Literal["waiting", "claimed", "delivered"], *, at: datetime
) -> OneTimeKey:
    """`state` with another `state` field. A delivered key is dropped."""
    return OneTimeKey(
        cluster=state.cluster,
        id=state.id,
        state=new,
        box="" if new == "delivered" else state.box,
        expires_at=state.expires_at,
        at=at,
    )


def _id(password: str) -> str:
    return hashlib.sha256(b"sluicegate one-time id\0" + password.encode()).hexdigest()[:32]


def _key(password: str) -> bytes:
    kdf = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"sluicegate one-time key v1")
    return kdf.derive(password.encode())
