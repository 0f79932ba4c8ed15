"""Names of platforms: `linux/arm64`, and three names that are older than the rule."""

import re
from typing import Final

ALWAYS: Final = frozenset({"local", "localhost", "linux/x86_64"})
"""Valid, although they break the rule."""

_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


class PlatformFormatError(ValueError):
    """The platform's name is invalid. Users see this text in the `error` key of the secret."""

    def __init__(self) -> None:
        super().__init__(
            "platform must be in format 'label/label' where each label follows Kubernetes RFC 1035 "
            "label name format"
        )


def is_platform(platform: str) -> bool:
    """Whether `platform` is a valid name.

    The rule is that of konflux-ci/multi-platform-controller@c28c4a01.
    """
    labels = platform.split("/")
    return platform in ALWAYS or (
        len(labels) == 2 and all(_LABEL.fullmatch(label) for label in labels)
    )


def check_platform(platform: str) -> str:
    """Return `platform` if its name is valid. Raises `PlatformFormatError`."""
    if not is_platform(platform):
        raise PlatformFormatError
    return platform


def key_of(platform: str) -> str:
    """The platform inside a key of the host configuration and as a metric label: `linux-arm64`."""
    return platform.replace("/", "-")
