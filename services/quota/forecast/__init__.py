"""What would happen: the same engine, in simulated time, from a state that was read. Writes nothing."""

from services.quota.forecast.course import Arrival, Course, Fate, Holder
from services.quota.forecast.past import Past, Run
from services.quota.forecast.picture import Picture
from services.quota.forecast.start import Expected, expected_start

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
