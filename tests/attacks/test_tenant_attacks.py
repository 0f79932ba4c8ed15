"""Every attack of a tenant holds, in a world of its own each (`make attack`, and CI a tenth each day)."""

import pytest

from tests.attacks.attack import Attack
from tests.attacks.field import raid
from tests.attacks.tenants import attacks


@pytest.mark.long
@pytest.mark.parametrize("refuses_starts", [True, False], ids=["refused", "let pass"])
@pytest.mark.parametrize("attack", list(attacks()), ids=str)
def test_tenant_runs_nothing_uncounted(attack: Attack, *, refuses_starts: bool) -> None:
    assert attack.raid is not None
    pods_wait = attack.pods_wait
    assert raid(attack.raid, refuses_starts=refuses_starts, pods_wait=pods_wait) is None
