"""The secret that the pod of a multi-platform TaskRun waits for: the contract with the build script.

The keys are those of konflux-ci/multi-platform-controller@c28c4a01. Private keys are not among them: they
never cross the bus in plain text.
"""

from typing import Final

from services.provisioner.config.systems import build_user_of
from shared.contracts.multi_platform import ERROR_KEY, HOST_KEY, USER_DIR_KEY

LOCALHOST: Final = "localhost"


def remote_secret(platform: str, *, user: str, address: str) -> dict[str, str]:
    """The secret of a TaskRun that builds on another host. `user`: its Linux user there."""
    builder = build_user_of(platform, user=user)
    return {HOST_KEY: f"{builder.user}@{address}", USER_DIR_KEY: builder.home}


def local_secret() -> dict[str, str]:
    """The secret of a TaskRun that builds in its own pod."""
    return {HOST_KEY: LOCALHOST}


def error_secret(*, message: str, platform: str) -> dict[str, str]:
    """The secret of a TaskRun that gets no host: the script prints the error and fails.

    multi-platform-controller adds a file and line of its own source code, which does not help a user.
    """
    return {ERROR_KEY: f"{message}\n\nContext info:\nPlatform: {platform or '[UNKNOWN]'}\n"}
