"""What spokes may write fits into the memory of those who read it (ADR 130)."""

import pytest
import yaml

from services.dispatcher.spokes.statuses import SPOKE_BYTES_MAX
from shared.bus.admin.permissions import spoke_writes
from shared.bus.spoke_gateway.writes import OTHER_BYTES_MAX, QUEUE_BYTES_MAX
from shared.bus.streams import DATA, load
from shared.contracts.kube.quantities import parse_quantity

BASE = DATA.parent / "kubernetes" / "base"
MIB = 1 << 20
SPOKES = 4
GROWTH = 8
"""Bytes that a reader holds for each byte of the densest object of the configuration."""


def held_of_configuration() -> int:
    return GROWTH * load().configuration_bytes


def held_by_the_dispatcher() -> int:
    """Statuses of copies and reports, the same as told to the hub, and what waits in the gateway."""
    lanes = len(spoke_writes())
    return 2 * SPOKE_BYTES_MAX + QUEUE_BYTES_MAX + (lanes - 1) * OTHER_BYTES_MAX


@pytest.mark.parametrize(
    ("service", "at_rest_mib", "of_one"),
    [
        ("classifier", 130, held_of_configuration()),
        ("quota", 80, held_of_configuration()),
        ("dispatcher", 90, held_by_the_dispatcher()),
    ],
)
def test_what_four_spokes_may_write_fits_into_the_memory_of_the_readers(
    service: str, at_rest_mib: int, of_one: int
) -> None:
    text = (BASE / service / "deployment.yaml").read_text()
    [deployment] = [one for one in yaml.safe_load_all(text) if one["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    limit = parse_quantity(container["resources"]["limits"]["memory"]) // 10**9
    assert at_rest_mib * MIB + SPOKES * of_one <= limit, (
        f"{service}: {of_one // MIB} MiB of a spoke"
    )
