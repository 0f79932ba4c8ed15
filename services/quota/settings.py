"""Settings of the quota service, with their defaults."""

from typing import Annotated, Literal

from pydantic import Field

from shared.settings.base import ServiceSettings

OnBypass = Literal["stop", "hold", "report"]
"""What to do with a job that runs without admission and cannot be suspended."""


class QuotaSettings(ServiceSettings):
    """Read once, at start, from `SLUICE_…` environment variables."""

    fair_sharing: tuple[Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"], ...] = ()
    """Preemption strategies of fair sharing; none: classical preemption (Kueue's
    `fairSharing.preemptionStrategies`)."""

    on_bypass: OnBypass = "stop"
    """What happens to a job that was started by hand while our hold was on it, if its kind cannot be
    suspended (a PipelineRun). `stop`: it is cancelled. `hold`: it is cancelled, and a copy waits in its
    place. `report`: it runs on; it holds quota unplanned, which blocks admissions."""

    on_missed: OnBypass = "report"
    """The same for a job that began while the webhook was away, which our hold was never on."""

    reason_delay_seconds: Annotated[float, Field(ge=0)] = 1.0
    """A workload that waits longer than this is told why; one that is admitted sooner costs no write."""

    forget_seconds: Annotated[float, Field(ge=0)] = 600.0
    """How long after its end a workload stays in the views, for readers that were cut off."""
