"""Everything an operator may set for the dispatcher, with its default."""

from typing import Annotated

from pydantic import Field

from shared.settings.base import ServiceSettings

__all__ = ["DispatcherSettings"]


class DispatcherSettings(ServiceSettings):
    """Read once, at start, from `SLUICE_…` environment variables."""

    multikueue_origin: str = "multikueue"
    """Value of the label by which a copy is known as one of ours; hubs that share spokes differ in it."""

    no_cluster_retry_seconds: Annotated[float, Field(gt=0)] = 60.0
    """A workload for which no spoke is usable queues again after this long."""

    not_seen_seconds: Annotated[float, Field(gt=0)] = 1.0
    """A job that was admitted but not observed yet is looked up again after this long."""

    forget_seconds: Annotated[float, Field(gt=0)] = 600.0
    """How long a withdrawn order stays in the view after its copy is gone."""

    tidy_seconds: Annotated[float, Field(gt=0)] = 60.0
    """How often that is looked at."""
