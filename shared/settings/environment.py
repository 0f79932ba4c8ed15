"""The environment of child processes. Only this module and the settings models read our variables."""

import os
from collections.abc import Mapping

from shared.settings.access import Access, access_of


def child_environment(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with `overrides`, for a child that reads its settings there."""
    return {**os.environ, **overrides}


def nats_access() -> Access:
    """How a command authenticates to NATS: by the same variables as a service."""
    return access_of(os.environ)
