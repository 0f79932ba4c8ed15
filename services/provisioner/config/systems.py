"""The operating system of a platform, and the user that builds on its machines.

The first word of the platform names the system. On Linux each TaskRun has a user of its own, with a key
that the provisioner makes. Images of Windows and macOS bring one user and its private key: such a
machine serves one TaskRun.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

BUILDER: Final = "konflux-builder"
"""The user that images of Windows and macOS bring."""


class System(StrEnum):
    """Operating system of a machine."""

    LINUX = "linux"
    WINDOWS = "windows"
    MACOS = "macos"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildUser:
    """The user that builds on a host, and its home folder."""

    user: str
    home: str


def system_of(platform: str) -> System:
    """`windows-4xlarge/amd64` runs Windows. A platform that names no system runs Linux."""
    for system in (System.WINDOWS, System.MACOS):
        if platform.startswith(system):
            return system
    return System.LINUX


def build_user_of(platform: str, *, user: str) -> BuildUser:
    """The user of a TaskRun on a host of `platform`. `user`: its name on Linux."""
    match system_of(platform):
        case System.WINDOWS:
            # Two backslashes, as in multi-platform-controller: the script passes them through a shell.
            return BuildUser(user=BUILDER, home=rf"C:\\Users\\{BUILDER}")
        case System.MACOS:
            return BuildUser(user=BUILDER, home=f"/Users/{BUILDER}")
        case System.LINUX:
            return BuildUser(user=user, home=f"/home/{user}")
