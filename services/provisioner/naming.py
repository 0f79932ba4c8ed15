"""Names that the provisioner gives: machines at a provider, and users on hosts.

Every name is derived from what it is for. After a crash the same name comes out again, so nothing is
made twice.
"""

import hashlib
from typing import Final

_OWNER_DIGITS: Final = 6
_NUMBER_DIGITS: Final = 10
_TAG_LENGTH_MAX: Final = 45
"""With a dash and 16 digits, a name stays below the 63 characters of a DNS label."""

_USER_DIGITS: Final = 28


def owner_mark(owner: str) -> str:
    """Six hexadecimal digits that say for which cluster a machine was ordered."""
    return hashlib.sha256(owner.encode()).hexdigest()[:_OWNER_DIGITS]


def machine_name(*, cluster: str, uid: str, attempt: int, tag: str) -> str:
    """`<tag>-<owner mark><number>`: the same for the same TaskRun `uid` and attempt.

    Some clouds keep no tags with a machine. There the name alone says whose it is.
    """
    number = hashlib.sha256(f"{cluster}/{uid}/{attempt}".encode()).hexdigest()[:_NUMBER_DIGITS]
    return f"{tag[:_TAG_LENGTH_MAX] or 'sluicegate'}-{owner_mark(cluster)}{number}"


def build_user_name(*, uid: str, host: str) -> str:
    """The Linux user of the TaskRun `uid` on `host`, within the 32 characters that Linux allows.

    It follows from the uid and not from the name: a TaskRun that has the name of an earlier one is
    another user, whom the cleaning of the earlier one cannot remove. It also follows from the name of the
    host: a host may be configured under two names, and be cleaned under one while it is used under the
    other.
    """
    return f"u-{hashlib.sha256(f'{uid}@{host}'.encode()).hexdigest()[:_USER_DIGITS]}"


def legacy_user_name(*, namespace: str, name: str) -> str:
    """The Linux user of a slot whose record names no user, as earlier versions derived it.

    Also konflux-ci/multi-platform-controller@c28c4a01 computes it in its provisioning script.
    """
    digest = hashlib.md5(f"{name}{namespace}\n".encode(), usedforsecurity=False)
    return f"u-{digest.hexdigest()[:_USER_DIGITS]}"
