"""Encrypts data on the bus for one reader: a sealed box for the reader's public key.

A sealed box of X25519, HKDF-SHA256 and ChaCha20-Poly1305. Each box has a key pair of its own, so a box
tells nothing about the next, and whoever publishes to the bus cannot decrypt it. The context is
authenticated: a box for one TaskRun opens for no other.
"""

import base64
import binascii
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES: Final = 32

Entropy = Callable[[int], bytes]
"""Returns that many unpredictable bytes: `secrets.token_bytes`; in a simulated world the seed's."""

_NONCE: Final = bytes(12)
"""Each key encrypts one box."""

_INFO: Final = b"sluicegate seal v1"


class SealError(ValueError):
    """The box is for another key or context, or is no box. The text tells nothing of its content."""


def public_key_of(private_key: bytes) -> str:
    """The public half of `private_key`, as it is published."""
    public = X25519PrivateKey.from_private_bytes(private_key).public_key()
    return base64.b64encode(public.public_bytes_raw()).decode()


def is_public_key(text: str) -> bool:
    """Whether something can be sealed to this key."""
    try:
        raw = base64.b64decode(text, validate=True)
        # The exchange refuses keys of small order, to which anybody could open a box.
        own = X25519PrivateKey.from_private_bytes(bytes(range(KEY_BYTES)))
        own.exchange(X25519PublicKey.from_public_bytes(raw))
    except (ValueError, binascii.Error):
        return False
    return True


def host_context(*, cluster: str, namespace: str, name: str, uid: str) -> str:
    """The context of a TaskRun's sealed secret: it opens for no other TaskRun."""
    return f"host/{cluster}/{namespace}/{name}/{uid}"


def seal(content: bytes, *, to: str, context: str, entropy: Entropy) -> str:
    """A box for the holder of the public key `to`. Raises `SealError` if `to` is no key."""
    try:
        reader = X25519PublicKey.from_public_bytes(base64.b64decode(to, validate=True))
        once = X25519PrivateKey.from_private_bytes(entropy(KEY_BYTES))
        shared = once.exchange(reader)
    except (ValueError, binascii.Error) as error:
        raise SealError("this is no public key to seal to") from error
    head = once.public_key().public_bytes_raw()
    key = _key(shared, head, reader.public_bytes_raw())
    box = ChaCha20Poly1305(key).encrypt(_NONCE, content, context.encode())
    return base64.b64encode(head + box).decode()


def open_sealed(box: str, *, private_key: bytes, context: str) -> bytes:
    """The content of `box`. Raises `SealError`."""
    own = X25519PrivateKey.from_private_bytes(private_key)
    try:
        raw = base64.b64decode(box, validate=True)
        head, body = raw[:KEY_BYTES], raw[KEY_BYTES:]
        shared = own.exchange(X25519PublicKey.from_public_bytes(head))
        key = _key(shared, head, own.public_key().public_bytes_raw())
        return ChaCha20Poly1305(key).decrypt(_NONCE, body, context.encode())
    except (ValueError, binascii.Error, InvalidTag) as error:
        raise SealError("it cannot be opened with this key") from error


def _key(shared: bytes, head: bytes, reader: bytes) -> bytes:
    kdf = HKDF(algorithm=hashes.SHA256(), length=KEY_BYTES, salt=head + reader, info=_INFO)
    return kdf.derive(shared)
