"""Mutants of what is believed: logs that forgot, garbage, other releases, servers that were deposed."""

import asyncio
from typing import Any, Final

from services.quota.log_room import NEEDED_BY_ENDS
from services.simulator.mutants.deciding import constant
from services.simulator.mutants.executing import NO_MARK_TESTED
from services.simulator.mutants.plant import Mutant
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.subjects import RULING

GARBAGE: Final = ("foreign-decisions", "garbage")


def _answers(value: Any) -> Any:
    """Answer `value` to whoever awaits an answer."""

    def make(_original: Any) -> Any:
        async def answer(*_arguments: Any, **_options: Any) -> Any:
            return value

        return answer

    return make


def _needs_no_leader(original: Any) -> Any:
    """Hold a decision that names no leader for one of the leader at that time."""

    def replaced_by(self: Any, entry: Any) -> Any:
        return original(self, entry) if RULING in entry.headers else None

    return replaced_by


def _room_is_presumed(original: Any) -> Any:
    """Ask how full the logs are after the first decision only."""

    async def look(self: Any) -> None:
        if self._asked_at:
            await original(self)
        else:
            now = asyncio.get_running_loop().time()
            self._asked_at.update(dict.fromkeys(NEEDED_BY_ENDS, now))

    return look


MUTANTS: Final = (
    Mutant(
        name="a decision does not name the one before it",
        adr=100,
        where="shared.bus.order.chains:Link.prepare",
        make=constant(True),
        scenarios=GARBAGE,
    ),
    Mutant(
        name="a log that lost its tail is not filled up",
        adr=85,
        where="services.simulator.scenarios.swarm.power_cuts:fill_up",
        make=constant(None),
        scenarios=("power-cuts",),
    ),
    Mutant(
        name="nobody looks for what a killed server brought back",
        adr=139,
        where="services.quota.trust.revived:RevivedEntries.look",
        make=_answers(None),
        scenarios=("revivals",),
    ),
    Mutant(
        name="a decision without a leader counts",
        adr=94,
        where="shared.bus.order.terms:Terms._replaced_by",
        make=_needs_no_leader,
        scenarios=GARBAGE,
    ),
    Mutant(
        name="void decisions are not repaired",
        adr=85,
        where="shared.testing.world.memory_bus:MemoryBus.void",
        make=_answers([]),
        scenarios=GARBAGE,
    ),
    Mutant(
        name="a decision of a newer release holds no quota",
        adr=94,
        where="services.quota.wire.entries:without_schema",
        make=lambda _original: dict,
        scenarios=("downgrades", "upgrades"),
    ),
    Mutant(
        name="an outcome of a newer release frees nothing",
        adr=94,
        is_rare=True,
        where="services.quota.wire.entries:OF_ANY_RELEASE",
        make=lambda original: original - {Outcome.stream},
        scenarios=("downgrades", "upgrades"),
    ),
    Mutant(
        name="the room in the logs is asked after the first decision",
        adr=0,
        where="services.quota.log_room:LogRoom.look",
        make=_room_is_presumed,
        scenarios=("disks",),
    ),
    Mutant(
        name="nobody asks whether a decision is the last one",
        adr=94,
        where="services.patcher.jobs.controller:JobController.check_is_last",
        make=_answers(None),
        scenarios=("stale-reads", "replicas"),
        besides=NO_MARK_TESTED,
    ),
    Mutant(
        name="a server that was deposed is believed",
        adr=115,
        where="shared.bus.nats.tails.compare:is_led",
        make=constant(True),
        scenarios=("stale-reads",),
        besides=NO_MARK_TESTED,
    ),
    Mutant(
        name="a writer does not look for what was acknowledged",
        adr=101,
        is_rare=True,
        where="shared.bus.order.acknowledged:Acknowledged.last_messages",
        make=constant({}),
        scenarios=("set-back",),
    ),
)
"""Logs first, then messages, then what is asked."""
