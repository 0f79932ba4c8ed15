"""Worlds with all services in them: a load, faults, and a judge. One seed is one history."""

from services.simulator.scenarios import basic, coscheduling, lives
from services.simulator.scenarios.machines import scenario as machines
from services.simulator.scenarios.port import Scenario
from services.simulator.scenarios.spokes import scenario as spokes

__all__ = ["SCENARIOS"]

SCENARIOS: dict[str, Scenario] = {
    "basic": basic.play,
    "coscheduling": coscheduling.play,
    "lives": lives.play,
    "machines": machines.play,
    "spokes": spokes.play,
}
"""By the name that `sluice simulate-world --scenario` takes."""
