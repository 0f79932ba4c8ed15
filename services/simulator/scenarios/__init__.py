"""Seeded worlds with all services in them: a load, faults, and checks of the outcome.

Enters: the name of a scenario and a seed; the same seed always gives the same run.
Inside: `system` builds the services of a world, each scenario drives a load through them, `runner`
plays many seeds on several cores.
Leaves: a `port.Verdict` for each seed: what is wrong, and a log of what happened.
"""

from functools import partial

from services.simulator.scenarios import basic, coscheduling, time_limits
from services.simulator.scenarios.kinds import scenario as kinds
from services.simulator.scenarios.machines import scenario as machines
from services.simulator.scenarios.port import Scenario
from services.simulator.scenarios.spokes import scenario as spokes
from services.simulator.scenarios.swarm import scenario as swarm
from services.simulator.scenarios.swarm.features import FOCUSES
from services.simulator.scenarios.tenants import scenario as tenants

SCENARIOS: dict[str, Scenario] = {
    "basic": basic.play,
    "coscheduling": coscheduling.play,
    "kinds": kinds.play,
    "lives": time_limits.play,
    "machines": machines.play,
    "spokes": spokes.play,
    "swarm": swarm.play,
    **{focus: partial(swarm.play_focused, focus) for focus in FOCUSES},
    "tenants": tenants.play,
}
"""Scenarios by the names of `sluice simulate-world --scenario`."""
