"""Ports of this machine that are promised to a program before it listens there."""

import atexit
import socket
from contextlib import ExitStack
from typing import Final

LOOPBACK: Final = "127.0.0.1"

_reserved: Final = ExitStack()
atexit.register(_reserved.close)


def reserve_port(port: int = 0, *, host: str = LOOPBACK) -> int:
    """Reserve a port for a child, as long as this process lives; 0: one that is free.

    A port that was only found to be free may be gone before the child listens, or between two of its lives:
    the kernel gives it to any connection that somebody opens. Linux does not assign a port that is bound, and
    lets a process that names it bind it beside a socket that does not listen (both with `SO_REUSEADDR`, as
    asyncio, Go and sshd set it).

    Raises `OSError` if somebody listens there.
    """
    held = socket.socket()
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, port))
    except OSError as error:
        held.close()
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from error
    _reserved.enter_context(held)
    return int(held.getsockname()[1])
