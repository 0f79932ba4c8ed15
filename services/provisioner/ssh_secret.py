"""The contract with the build script: the secret that its pod waits for (`research/tekton.md` 2.2).

No key is among these: a machine of the `fake` provider has none, and key material never crosses the
bus.
"""

import hashlib
from typing import Final

__all__ = ["LOCALHOST", "VOLUME_PREFIX", "error_secret", "local_secret", "remote_secret", "user_of"]

VOLUME_PREFIX: Final = "multi-platform-ssh-"
LOCALHOST: Final = "localhost"
_USER_DIGITS: Final = 28


def user_of(*, namespace: str, name: str) -> str:
    """The user on the remote host: one per TaskRun, within the length that Linux allows."""
    digest = hashlib.md5(f"{name}{namespace}\n".encode(), usedforsecurity=False)
    return f"u-{digest.hexdigest()[:_USER_DIGITS]}"


def remote_secret(*, namespace: str, name: str, address: str) -> dict[str, str]:
    """Build on another machine."""
    user = user_of(namespace=namespace, name=name)
    return {"host": f"{user}@{address}", "user-dir": f"/home/{user}"}


def local_secret() -> dict[str, str]:
    """Build in the pod itself."""
    return {"host": LOCALHOST}


def error_secret(*, message: str, platform: str) -> dict[str, str]:
    """What the script prints before it fails.

    The reference also names a file and a line of its own source, which says nothing to a user.
    """
    return {"error": f"{message}\n\nContext info:\nPlatform: {platform or '[UNKNOWN]'}\n"}
