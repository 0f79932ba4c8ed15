"""Settings of the quota service, with their defaults."""

from typing import Annotated, Literal

from pydantic import Field

from shared.settings.base import ServiceSettings


class QuotaSettings(ServiceSettings):
    """Read once, at start, from `SLUICE_…` environment variables."""

    fair_sharing: tuple[Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"], ...] = ()
    """Preemption strategies of fair sharing; none: classical preemption (Kueue's
    `fairSharing.preemptionStrategies`)."""

    reason_delay_seconds: Annotated[float, Field(ge=0)] = 1.0
    """A workload that waits longer than this is told why; one that is admitted sooner costs no write."""

    audit_seconds: Annotated[float, Field(gt=0)] = 60.0
    """How often the invariants are recomputed from what is on the log."""
