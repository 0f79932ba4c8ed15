"""Every attack on the bus holds; those that do not yet are named with the reason."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.attacks.attack import Attack, attempt
from tests.attacks.place import Place
from tests.attacks.table import attacks

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    found = Place()
    yield found
    await found.leave()


BUS = [attack for attack in attacks() if attack.threat != "T1"]


@pytest.mark.parametrize("attack", BUS, ids=str)
async def test_attack_changes_nothing_and_learns_nothing(attack: Attack, place: Place) -> None:
    assert await attempt(attack, place) is None
