"""Everything an operator may set for the tracer, with its default."""

from typing import Annotated

from pydantic import Field

from shared.settings.base import ServiceSettings


class TracerSettings(ServiceSettings):
    """Read once, at start, from `SLUICE_…` environment variables."""

    trace_settle_seconds: Annotated[float, Field(ge=0)] = 2.0
    """How long after the end of a workload its trace is made: the last messages about it are on the log by
    then."""
