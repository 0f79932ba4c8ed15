"""What the providers have against what the records say. Finds leaks; pure.

The order of reading makes it safe: a machine's record is written before the machine is ordered, so
one that was listed first and has no record afterwards belongs to nobody.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from services.provisioner.allocation.ledger import Machine
from services.provisioner.providers.port import Vm, VmState

__all__ = ["Sweep", "sweep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What one comparison found."""

    orphans: tuple[str, ...]
    """Machines without a record: to be terminated."""

    vanished: tuple[str, ...]
    """Records whose machine ran, and is no longer there: to be forgotten."""


def sweep(
    *,
    listed: Iterable[Vm],
    running_before: frozenset[str],
    records: Mapping[str, Machine],
) -> Sweep:
    """Compare what one provider listed with the `records` as they are after it had answered.

    `running_before`: names of that provider's machines that were recorded as running before it was
    asked. A younger record may be of a machine that the list does not show yet.
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
