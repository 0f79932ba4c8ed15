"""The contract with the build script: the secret that its pod waits for (`research/tekton.md` 2.2).

No key is among these: a machine of the `fake` provider has none, and key material never crosses the
bus.
"""

from typing import Final

from services.provisioner.config.systems import builder_of

__all__ = ["LOCALHOST", "VOLUME_PREFIX", "error_secret", "local_secret", "remote_secret"]

VOLUME_PREFIX: Final = "multi-platform-ssh-"
LOCALHOST: Final = "localhost"


def remote_secret(platform: str, *, namespace: str, name: str, address: str) -> dict[str, str]:
    """Build on another machine."""
    builder = builder_of(platform, namespace=namespace, name=name)
    return {"host": f"{builder.user}@{address}", "user-dir": builder.home}


def local_secret() -> dict[str, str]:
    """Build in the pod itself."""
    return {"host": LOCALHOST}


def error_secret(*, message: str, platform: str) -> dict[str, str]:
    """What the script prints before it fails.

    The reference also names a file and a line of its own source, which says nothing to a user.
    """
    return {"error": f"{message}\n\nContext info:\nPlatform: {platform or '[UNKNOWN]'}\n"}
