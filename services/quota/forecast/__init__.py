"""What would happen: the same engine, in simulated time, from a state that was read. Writes nothing."""

from services.quota.forecast.expected_start import Expected, expected_start
from services.quota.forecast.history import Past, Run
from services.quota.forecast.simulation import Arrival, Course, Fate, Holder
from services.quota.forecast.snapshot import Picture

__all__ = [
    "Arrival",
    "Course",
    "Expected",
    "Fate",
    "Holder",
    "Past",
    "Picture",
    "Run",
    "expected_start",
]
