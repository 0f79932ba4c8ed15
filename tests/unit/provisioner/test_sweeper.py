"""Machines at a provider are compared with records."""

from dataclasses import dataclass, field

import pytest

from services.provisioner.allocation.ledger import Machine
from services.provisioner.machines.sweeper import Sweep, sweep
from services.provisioner.providers.port import Vm, VmState
from tests.unit.provisioner.builders import machine


def vm(name: str, state: VmState = VmState.RUNNING) -> Vm:
    return Vm(name=name, state=state)


@dataclass(frozen=True, kw_only=True)
class Case:
    listed: list[Vm] = field(default_factory=list)
    running_before: set[str] = field(default_factory=set)
    records: list[Machine] = field(default_factory=list)
    orphans: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()


CASES = {
    "a machine with a record is left alone": Case(listed=[vm("m")], records=[machine("m")]),
    "a machine without a record is an orphan": Case(listed=[vm("b"), vm("a")], orphans=("a", "b")),
    "one that starts or failed is an orphan too": Case(
        listed=[vm("a", VmState.STARTING), vm("b", VmState.FAILED)], orphans=("a", "b")
    ),
    "one that is gone is none": Case(listed=[vm("m", VmState.GONE)]),
    "a machine that ran before the list was made, and is not on it, vanished": Case(
        running_before={"m"}, records=[machine("m")], vanished=("m",)
    ),
    "a machine that came up while the list was made did not": Case(records=[machine("m")]),
    "a machine that starts may not be on the list yet": Case(records=[machine("m", "launching")]),
    "a machine that was told to go meanwhile did not vanish": Case(
        running_before={"m"}, records=[machine("m", "terminating")]
    ),
    "a machine that was forgotten meanwhile needs nothing": Case(running_before={"m"}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_sweep_finds_orphans_and_vanished_machines(case: Case) -> None:
    found = sweep(
        listed=case.listed,
        running_before=frozenset(case.running_before),
        records={one.name: one for one in case.records},
    )
    assert found == Sweep(orphans=case.orphans, vanished=case.vanished)
