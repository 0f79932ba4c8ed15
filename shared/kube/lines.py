"""Splits the body of a watch into lines."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from shared.kube.port import UnavailableError

LINE_BYTES_MAX: Final = 32 << 20
"""etcd takes 1.5 MiB an object; this stops a server that never ends its line."""


async def lines(pieces: AsyncIterator[bytes], *, what: str) -> AsyncGenerator[bytes]:
    """Yield each line without its end. Raises `UnavailableError` if the last line is incomplete."""
    rest = bytearray()
    async for piece in pieces:
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            line = bytes(rest) + piece[start:end] if rest else piece[start:end]
            rest.clear()
            start = end + 1
            if line:
                yield line
        rest += piece[start:]
        if len(rest) > LINE_BYTES_MAX:
            raise UnavailableError(f"{what}: a line of more than {LINE_BYTES_MAX} bytes")
    if rest:
        raise UnavailableError(f"{what}: broken off inside a line")
