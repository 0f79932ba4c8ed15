"""What a machine runs, and who builds on it: the platform's first word says so (`research/tekton.md` 2.7).

On Linux each TaskRun has a user of its own, with a key that is made here. Images of Windows and macOS
bring one user, and leave its private key where we find it: such a machine serves one TaskRun.
"""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["Builder", "System", "builder_of", "system_of", "user_of"]

BUILDER: Final = "konflux-builder"
"""The user that images of Windows and macOS bring."""

_USER_DIGITS: Final = 28


class System(StrEnum):
    """What is told apart."""

    LINUX = "linux"
    WINDOWS = "windows"
    MACOS = "macos"


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """Who builds on a host."""

    user: str
    home: str


def system_of(platform: str) -> System:
    """`windows-4xlarge/amd64` runs Windows; what says nothing runs Linux."""
    for system in (System.WINDOWS, System.MACOS):
        if platform.startswith(system):
            return system
    return System.LINUX


def builder_of(platform: str, *, namespace: str, name: str) -> Builder:
    """The user of a TaskRun on a host of `platform`."""
    match system_of(platform):
        case System.WINDOWS:
            # Both backslashes stand in the reference's secret: the script passes it through a shell.
            return Builder(user=BUILDER, home=rf"C:\\Users\\{BUILDER}")
        case System.MACOS:
            return Builder(user=BUILDER, home=f"/Users/{BUILDER}")
        case System.LINUX:
            user = user_of(namespace=namespace, name=name)
            return Builder(user=user, home=f"/home/{user}")


def user_of(*, namespace: str, name: str) -> str:
    """The user on a Linux host: one per TaskRun, within the length that Linux allows."""
    digest = hashlib.md5(f"{name}{namespace}\n".encode(), usedforsecurity=False)
    return f"u-{digest.hexdigest()[:_USER_DIGITS]}"
