"""A network of our own for the whole run: some of the programs listen on every address.

It has nothing but a loopback interface, so nobody outside reaches them, and every port is free.
"""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
from typing import Final

MARK: Final = "CONTROLLERS_NETWORK"
COMMAND: Final = ("unshare", "--map-root-user", "--net", "--")
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def missing() -> str | None:
    """Why there can be no such network; None: there can."""
    if MARK in os.environ:
        return None
    if shutil.which(COMMAND[0]) is None:
        return "it needs `unshare` (util-linux), for a network of its own"
    if subprocess.run([*COMMAND, "true"], check=False, capture_output=True).returncode:
        return "it may not make a network of its own here (`unshare --map-root-user --net`)"
    return None


def enter(module: str, arguments: list[str]) -> None:
    """Begin this program again inside, or, where it is inside, bring the loopback interface up."""
    if MARK in os.environ:
        _raise_loopback()
        return
    os.environ[MARK] = "own"
    os.execvp(COMMAND[0], [*COMMAND, sys.executable, "-m", module, *arguments])


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(probe, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
