"""Why an ADR has no mutant: it speaks of no mechanism of safety, or no world has what it protects."""

from collections.abc import Mapping
from typing import Final

_STRUCTURE: Final = "how code and deployment are arranged: tests/architecture/test_house.py"

UNPLANTED: Final[Mapping[int, str]] = {
    6: "no object of a world is too large: tests/contract/bus/test_bodies.py",
    7: "speed only: tests/unit/runtime",
    8: "saves messages; what is late decides nothing: tests/unit/quota/test_queue_status.py",
    10: "that preemption ends is no matter of safety: tests/unit/quota/test_preemption.py",
    21: "tests/simulation/test_machine_slots.py",
    30: _STRUCTURE,
    34: "worlds call the webhook without HTTP, and no time passes in it: tests/unit/classifier/webhook",
    41: "worlds have no child processes: tests/integration/test_pairs.py",
    60: "the console writes nothing: tests/unit/console",
    70: _STRUCTURE,
    71: "worlds have no users of NATS: tests/contract/deploy/test_nats.py",
    72: "worlds have no users of NATS: tests/attacks/test_bus_attacks.py",
    73: "forged orders need a key that was stolen: tests/integration/test_forged_orders.py",
    80: _STRUCTURE,
    81: "leadership saves work; the fences of ADR 2 and 1, and ADR 119, have mutants",
    82: _STRUCTURE,
    83: _STRUCTURE,
    84: _STRUCTURE,
    86: "an operator retries and drops: tests/integration/test_dead_letters.py",
    87: "worlds are shorter than what is kept of the end of a workload: tests/contract/bus/test_ended.py",
    88: "no service runs then: tests/unit/ctl/test_uninstall.py",
    89: "speaks of these mutants: tests/simulation/test_mutants.py",
    90: "worlds have no users of NATS: tests/attacks/test_bus_attacks.py",
    91: "speaks of long worlds: tests/simulation/test_long.py",
    92: "a second look at what the mutants of quota break: tests/unit/quota/test_auditor.py",
    93: "faults of real parts: tests/faults",
    96: "that a bad message stops no others is delay only: tests/simulation/test_bad_messages.py",
    97: "checks of others: tests/unit/quota/test_recorded_checks.py",
    98: "no world deletes queues: tests/unit/patcher/test_finalizers.py",
    99: "a forecast decides nothing: tests/simulation/test_forecast_budget.py",
    102: "speaks of worlds: tests/simulation/test_power_cuts.py",
    104: "worlds have no accounts of spokes, and no gateway: tests/integration/test_spoke_writes.py",
    106: "compatibility: tests/unit/quota/test_conformance.py",
    107: "worlds have no autoscaler: tests/simulation/test_provisioning.py",
    108: "tests/simulation/test_prebuilt.py",
    110: "tests/simulation/test_ml_kinds.py",
    112: _STRUCTURE,
    113: _STRUCTURE,
    114: "history is read only: tests/unit/history",
    116: "the memory bus knows neither hints nor direct reads: tests/integration/test_direct_reading.py",
    118: "worlds have no users of NATS, and forge no headers: tests/attacks/test_bus_attacks.py",
    121: "figures to look at: tests/unit/quota/test_balances.py",
    123: "few worlds have a replica that is late with decisions only: tests/unit/patcher/test_late_stop.py",
    126: "one world in a hundred loses a Term that mattered: tests/contract/bus/test_order.py",
}
"""By the number of the ADR; behind a colon or alone the tests that notice instead."""
