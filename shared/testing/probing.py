"""That a safety mechanism acts, where no world shows it."""

from collections.abc import Iterator
from contextlib import contextmanager

from shared.telemetry.probes import Probe


@contextmanager
def acts(probe: Probe) -> Iterator[None]:
    """Fail unless the mechanism acts in this process meanwhile."""
    before = probe.fired
    yield
    assert probe.fired > before, f"it never was so that {probe.says}"
