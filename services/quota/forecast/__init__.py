"""Forecasts: the same engine in simulated time, from a snapshot of the streams. Writes nothing.

`snapshot` reads the state of one instant, `history` the run times of finished workloads. `simulation`
plays the future from both, and `expected_start` plays many futures to say when a workload starts.
"""

from services.quota.forecast.expected_start import (
    BUDGET_SECONDS,
    RECENT,
    Budget,
    ExpectedStart,
    expected_start,
    expected_starts,
)
from services.quota.forecast.history import FinishedRun, History
from services.quota.forecast.simulation import (
    Arrival,
    RunningWorkload,
    SimulatedWorkload,
    Simulation,
)
from services.quota.forecast.snapshot import Snapshot

__all__ = [
    "BUDGET_SECONDS",
    "RECENT",
    "Arrival",
    "Budget",
    "ExpectedStart",
    "FinishedRun",
    "History",
    "RunningWorkload",
    "SimulatedWorkload",
    "Simulation",
    "Snapshot",
    "expected_start",
    "expected_starts",
]
