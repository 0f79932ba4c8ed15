"""Keys that are fetched once, by a password: kept encrypted on the bus, so that any replica gives them out.

The encryption key is derived from the password, which only the TaskRun's secret holds: who reads the
bus, or a disk of it, can read no private key, and the replicas share no secret. A key is claimed
before it is given out, and forgotten when it is confirmed that it arrived; a claim that is never
confirmed (the answer was lost) runs out, and the key may be fetched again.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import structlog
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shared.bus.port import Bus, CaughtUp, Entry, FencedError
from shared.contracts import subjects
from shared.contracts.messages.base import UndecodableError
from shared.contracts.messages.effects import OneTimeKey
from shared.contracts.seal import Entropy

__all__ = [
    "CLAIM_SECONDS",
    "KEY_BYTES_MAX",
    "PASSWORD",
    "Claim",
    "ClaimedError",
    "OneTimeKeys",
    "UnknownPasswordError",
]

log = structlog.get_logger(__name__)

ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-"
PASSWORD_LENGTH: Final = 20
PASSWORD: Final = re.compile(r"[0-9A-Za-z-]{20}")
KEY_BYTES_MAX: Final = 16_384
"""The longest private key that is kept."""

CLAIM_SECONDS: Final = 15.0
"""How long an answer may take to be confirmed before the key may be fetched again."""

_FAIR_BYTES: Final = 256 - 256 % len(ALPHABET)
_NONCE: Final = bytes(12)
"""Each password encrypts one key, once."""


class UnknownPasswordError(LookupError):
    """Never given out, delivered, or expired; it does not say which."""


class ClaimedError(Exception):
    """Somebody is being given this key at this moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A key on its way."""

    private_key: bytes
    state: OneTimeKey
    sequence: int


class OneTimeKeys:
    """The keys of one cluster. Every replica has one of these, and they share the bus."""

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
        """`url`: where TaskRuns fetch; `authority`: PEM of what they trust there."""
        self._cluster = cluster
        self._bus = bus
        self._url = url
        self._authority = authority
        self._life = timedelta(seconds=life_seconds)
        self._now = now
        self._entropy = entropy

    async def hand_over(self, private_key: bytes) -> Mapping[str, str]:
        """Keep a key; return what a TaskRun's secret must hold to get it.

        Raises `BusError` where it cannot be kept, ValueError for what is too long to be a key.
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
            expires_at=now + self._life,
            at=now,
        )
        await self._bus.publish(state, expect_subject=0)
        return {"otp": password, "otp-ca": self._authority(), "otp-server": self._url}

    async def claim(self, password: str) -> Claim:
        """Take the key that `password` is for. Raises `UnknownPasswordError`, `ClaimedError`."""
        if not PASSWORD.fullmatch(password):
            raise UnknownPasswordError
        now = self._now()
        subject = OneTimeKey(
            cluster=self._cluster, id=_id(password), state="waiting", expires_at=now, at=now
        ).subject
        entry = await self._bus.latest("KEYS", subject)
        state = _decoded(entry)
        if entry is None or state is None or state.state == "delivered" or now >= state.expires_at:
            raise UnknownPasswordError
        if state.state == "claimed" and now < state.at + timedelta(seconds=CLAIM_SECONDS):
            raise ClaimedError
        try:
            box = base64.b64decode(state.box, validate=True)
            private_key = ChaCha20Poly1305(_key(password)).decrypt(_NONCE, box, None)
        except (InvalidTag, ValueError, binascii.Error) as error:
            raise UnknownPasswordError from error
        claimed = state.model_copy(update={"state": "claimed", "at": now})
        try:
            sequence = await self._bus.publish(claimed, expect_subject=entry.sequence)
        except FencedError as error:
            raise ClaimedError from error
        return Claim(private_key=private_key, state=claimed, sequence=sequence)

    async def confirm(self, claim: Claim) -> None:
        """It arrived: forget it. A claim that was overtaken by another one changes nothing."""
        await self._end(claim.state, claim.sequence)

    async def release(self, claim: Claim) -> None:
        """It did not arrive: it may be fetched again at once."""
        again = claim.state.model_copy(update={"state": "waiting", "at": self._now()})
        try:
            await self._bus.publish(again, expect_subject=claim.sequence)
        except FencedError:
            log.info("a key was fetched again before its claim was given back", id=again.id)

    async def forget_expired(self) -> int:
        """Drop what was not fetched in time; return how many there were."""
        old: list[tuple[OneTimeKey, int]] = []
        now = self._now()
        entries = self._bus.watch("KEYS", f"sluice.key.{subjects.encode(self._cluster)}.>")
        try:
            async for entry in entries:
                if isinstance(entry, CaughtUp):
                    break
                state = _decoded(entry)
                if state is not None and (now >= state.expires_at or state.state == "delivered"):
                    old.append((state, entry.sequence))
        finally:
            await entries.aclose()
        for state, sequence in old:
            await self._end(state, sequence)
        return len(old)

    async def _end(self, state: OneTimeKey, sequence: int) -> None:
        try:
            if state.state != "delivered":
                update = {"state": "delivered", "box": "", "at": self._now()}
                ended = state.model_copy(update=update)
                sequence = await self._bus.publish(ended, expect_subject=sequence)
            await self._bus.purge("KEYS", state.subject, up_to=sequence)
        except FencedError:
            log.info("a key was fetched again before it was forgotten", id=state.id)

    def _password(self) -> str:
        letters: list[str] = []
        while len(letters) < PASSWORD_LENGTH:
            # Those beyond a multiple of the alphabet's length would make some letters likelier.
            fair = [byte for byte in self._entropy(PASSWORD_LENGTH) if byte < _FAIR_BYTES]
            letters += [ALPHABET[byte % len(ALPHABET)] for byte in fair]
        return "".join(letters[:PASSWORD_LENGTH])


def _id(password: str) -> str:
    return hashlib.sha256(b"sluicegate one-time id\0" + password.encode()).hexdigest()[:32]


def _key(password: str) -> bytes:
    kdf = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"sluicegate one-time key v1")
    return kdf.derive(password.encode())


def _decoded(entry: Entry | None) -> OneTimeKey | None:
    if entry is None:
        return None
    try:
        return entry.read(OneTimeKey)
    except UndecodableError as error:
        log.warning("key skipped", subject=entry.subject, error=str(error))
        return None
