"""The key pair of a cluster: only its patcher can open what is sealed with the public key.

The pair is in a Secret that the first replica creates; the public key is published on the bus. If the
Secret is deleted, a new pair is created. What was sealed with the old one can never be opened, and its
TaskRun fails with that message.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable
from datetime import datetime
from typing import Final

import structlog

from services.patcher.cluster.writer import create_or_get, get_or_none
from shared.bus.follow import read
from shared.bus.port import Bus, BusError, LaterError
from shared.contracts.kube.bodies import Body
from shared.contracts.kube.kinds import SECRET
from shared.contracts.messages.hosts import SealKey
from shared.contracts.seal import KEY_BYTES, Entropy, SealError, open_sealed, public_key_of
from shared.kube.port import Kube, KubeError
from shared.telemetry.once import Once

log = structlog.get_logger(__name__)

SECRET_NAME: Final = "sluicegate-seal"  # noqa: S105 - a name, no secret
FIELD: Final = "x25519"
RETRY_SECONDS: Final = 5.0
LOGGED_MAX: Final = 20
"""Reasons why there is no key that are logged, each once: it is tried again without end."""


class SealKeyStore:
    """Holds the private key, once `run` has read or created it."""

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
        """`namespace`: of the Secret."""
        self._cluster = cluster
        self._namespace = namespace
        self._bus = bus
        self._kube = kube
        self._now = now
        self._entropy = entropy
        self._private_key: bytes | None = None
        self._logged = Once(LOGGED_MAX)

    async def run(self) -> None:
        """Read or create the key, publish its public half, then wait to be cancelled."""
        while True:
            try:
                self._private_key = await self._read_or_create()
                key = public_key_of(self._private_key)
                message = SealKey(cluster=self._cluster, public_key=key, at=self._now())
                # What nobody can read says no key: it is said again, in the place of that.
                last_published = read(
                    await self._bus.latest(SealKey.stream, message.subject), SealKey
                )
                if last_published is None or last_published.public_key != key:
                    await self._bus.publish(message)
                break
            except (KubeError, BusError, ValueError) as error:
                if self._logged.is_new(str(error)):
                    log.warning(
                        "no key to seal to yet", namespace=self._namespace, error=str(error)
                    )
                await asyncio.sleep(RETRY_SECONDS)
        await asyncio.Event().wait()

    def open(self, box: str, *, context: str) -> bytes:
        """Decrypt what was sealed to this cluster.

        Raises `SealError`, and `LaterError` while the key is not read yet.
        """
        if self._private_key is None:
            raise LaterError("the key to open it with has not been read yet")
        try:
            return open_sealed(box, private_key=self._private_key, context=context)
        except SealError as error:
            log.error("a box was sealed to another key", context=context, error=str(error))
            raise

    async def _read_or_create(self) -> bytes:
        secret = await get_or_none(self._kube, SECRET, self._namespace, SECRET_NAME)
        if secret is None:
            new: Body = {
                "apiVersion": SECRET.api_version,
                "kind": SECRET.kind,
                "metadata": {"name": SECRET_NAME, "namespace": self._namespace},
                "data": {FIELD: base64.b64encode(self._entropy(KEY_BYTES)).decode()},
                "type": "Opaque",
            }
            secret, _ = await create_or_get(self._kube, SECRET, new)
        return _key_in(secret)


def _key_in(secret: Body) -> bytes:
    """The private key. Raises `ValueError` if the Secret has none of the right length."""
    try:
        key = base64.b64decode((secret.get("data") or {}).get(FIELD, ""), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise ValueError(f"Secret {SECRET_NAME} has no key of {KEY_BYTES} bytes in '{FIELD}'")
    return key
