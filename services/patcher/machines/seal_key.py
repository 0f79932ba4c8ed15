"""The key pair for what only a cluster's patcher may read: in a Secret, the public half published.

The Secret is made by whichever replica comes first. If it is deleted, a new pair is made, and what
was sealed to the old one can be opened by nobody: its TaskRun is told so.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from shared.bus.port import Bus, BusError, LaterError
from shared.contracts.kube.kinds import SECRET, Object
from shared.contracts.messages.effects import SealKey
from shared.contracts.seal import KEY_BYTES, Entropy, SealError, open_sealed, public_key_of
from shared.kube.port import AlreadyExistsError, Kube, KubeError, NotFoundError

__all__ = ["SECRET_NAME", "SealKeeper"]

log = structlog.get_logger(__name__)

SECRET_NAME: Final = "sluicegate-seal"  # noqa: S105 - a name, no secret
FIELD: Final = "x25519"
RETRY_SECONDS: Final = 5.0


class SealKeeper:
    """Holds the private half. `run` must run for anything to be opened."""

    def __init__(
        self,
        *,
        cluster: str,
        namespace: str,
        bus: Bus,
        kube: Kube,
        now: Callable[[], datetime],
        entropy: Entropy,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._bus = bus
        self._kube = kube
        self._now = now
        self._entropy = entropy
        self._private_key: bytes | None = None

    async def run(self) -> None:
        """Read or make the key, publish its public half, then wait to be cancelled."""
        while True:
            try:
                self._private_key = await self._read() or await self._make()
                key = public_key_of(self._private_key)
                latest = await self._bus.latest("HOSTS", self._message(key).subject)
                if latest is None or SealKey.decode(latest.data).public_key != key:
                    await self._bus.publish(self._message(key))
                break
            except (KubeError, BusError, ValueError) as error:
                log.warning("no key to seal to yet", namespace=self._namespace, error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
        await asyncio.Event().wait()

    def open(self, box: str, *, context: str) -> bytes:
        """What was sealed to us. Raises `SealError`, and `LaterError` before the key was read."""
        if self._private_key is None:
            raise LaterError("the key to open it with has not been read yet")
        try:
            return open_sealed(box, private_key=self._private_key, context=context)
        except SealError as error:
            log.error("a box was sealed to another key", context=context, error=str(error))
            raise

    def _message(self, key: str) -> SealKey:
        return SealKey(cluster=self._cluster, public_key=key, at=self._now())

    async def _read(self) -> bytes | None:
        try:
            secret = await self._kube.get(SECRET, self._namespace, SECRET_NAME)
        except NotFoundError:
            return None
        return _key_in(secret)

    async def _make(self) -> bytes:
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET_NAME, "namespace": self._namespace},
            "data": {FIELD: base64.b64encode(self._entropy(KEY_BYTES)).decode()},
            "type": "Opaque",
        }
        try:
            return _key_in(await self._kube.create(SECRET, secret))
        except AlreadyExistsError:
            return _key_in(await self._kube.get(SECRET, self._namespace, SECRET_NAME))


def _key_in(secret: Object) -> bytes:
    try:
        key = base64.b64decode((secret.get("data") or {}).get(FIELD, ""), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"Secret {SECRET_NAME} has no key of {KEY_BYTES} bytes in '{FIELD}'")
    return key
