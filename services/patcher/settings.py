"""Everything an operator may set for the patcher, with its default."""

from typing import Annotated

from pydantic import Field

from shared.settings.kube import KubeSettings

__all__ = ["PatcherSettings"]


class PatcherSettings(KubeSettings):
    """Read once, at start, from `SLUICE_…` environment variables."""

    not_seen_seconds: Annotated[float, Field(gt=0)] = 0.2
    """A decision about an object that was not observed yet is tried again after this long."""
