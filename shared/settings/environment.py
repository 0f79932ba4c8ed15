"""The environment of child processes. Together with the settings models the only reader of ours."""

import os
from collections.abc import Mapping

__all__ = ["child_environment"]


def child_environment(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with `overrides`, for a child that reads its settings there."""
    return {**os.environ, **overrides}
