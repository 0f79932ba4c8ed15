"""What a platform may be called: `linux/arm64`, and three names that are older than the rule."""

import re
from typing import Final

__all__ = ["PlatformFormatError", "check_platform", "is_platform", "key_of"]

ALWAYS: Final = frozenset({"local", "localhost", "linux/x86_64"})
"""They pass though they break the rule."""

_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


class PlatformFormatError(ValueError):
    """The text reaches the user through the `error` key of the secret; people search for it."""

    def __init__(self) -> None:
        super().__init__(
            "platform must be in format 'label/label' where each label follows Kubernetes RFC 1035 "
            "label name format"
        )


def is_platform(platform: str) -> bool:
    """Whether `platform` is one (`research/tekton.md` 2.4)."""
    labels = platform.split("/")
    return platform in ALWAYS or (
        len(labels) == 2 and all(_LABEL.fullmatch(label) for label in labels)
    )


def check_platform(platform: str) -> str:
    """Return `platform` if it is one. Raises `PlatformFormatError`."""
    if not is_platform(platform):
        raise PlatformFormatError
    return platform


def key_of(platform: str) -> str:
    """How the platform is written inside a key of the host configuration: `linux-arm64`."""
    return platform.replace("/", "-")
