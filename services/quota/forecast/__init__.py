"""What would happen: the same engine, in simulated time, from a state that was read. Writes nothing."""

from services.quota.forecast.expected_start import ExpectedStart, expected_start
from services.quota.forecast.history import FinishedRun, History
from services.quota.forecast.simulation import (
    Arrival,
    RunningWorkload,
    SimulatedWorkload,
    Simulation,
)
from services.quota.forecast.snapshot import Snapshot

__all__ = [
    "Arrival",
    "ExpectedStart",
    "FinishedRun",
    "History",
    "RunningWorkload",
    "SimulatedWorkload",
    "Simulation",
    "Snapshot",
    "expected_start",
]
