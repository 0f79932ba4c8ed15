"""Compares the machines at a provider with the records, and finds leaks. Pure.

A machine's record is written before the machine is ordered. So a machine that was listed first and has
no record afterwards is a leak.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from services.provisioner.allocation.ledger import Machine
from services.provisioner.providers.port import Vm, VmState


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The result of one comparison, as names of machines."""

    orphans: tuple[str, ...]
    """Machines without a record. They are to be terminated."""

    vanished: tuple[str, ...]
    """Recorded machines that ran and do not exist any more."""


def sweep(
    *,
    listed: Iterable[Vm],
    running_before: frozenset[str],
    records: Mapping[str, Machine],
) -> Sweep:
    """Compare the list of one provider with the `records` as they are after the provider answered.

    `running_before`: names of that provider's machines that were recorded as running before it was
    asked. The list may not show a machine yet whose record is younger.
    """
    present = {vm.name for vm in listed if vm.state is not VmState.GONE}
    return Sweep(
        orphans=tuple(sorted(present - records.keys())),
        vanished=tuple(
            sorted(
                name
                for name in running_before - present
                if name in records and records[name].state == "running"
            )
        ),
    )
