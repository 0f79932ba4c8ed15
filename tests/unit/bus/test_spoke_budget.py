"""What one spoke may write to one log, and in what time."""

import pytest

from shared.bus.spoke_gateway.budget import PART, Budget, Limits, share_of

MIB = 1 << 20
HOUR = 3600.0


def budget(**changes: float) -> Budget:
    limits = {"log_bytes": 8 * PART * MIB, "hours": 1.0, "messages_at_once": 10.0} | changes
    return Budget(Limits(**limits), now=0.0)  # type: ignore[arg-type]


def write(found: Budget, size: int, now: float) -> bool:
    """Write a message; False if the budget has no room."""
    if found.lacks(size, now) or found.wait(now):
        return False
    found.charge(size)
    return True


@pytest.mark.parametrize(
    ("writes", "expected"),
    [
        pytest.param([(0, 4), (0, 4), (0, 1)], [True, True, False], id="its part is all at once"),
        pytest.param(
            [(0, 8), (HOUR / 8, 1), (HOUR / 8, 1)],
            [True, True, False],
            id="its part comes back in time",
        ),
        pytest.param(
            [(0, 8), (10 * HOUR, 8), (10 * HOUR, 1)],
            [True, True, False],
            id="what is not used is not saved beyond the part",
        ),
        pytest.param(
            [(0, 12), (HOUR, 1), (1.5 * HOUR + 1, 8)],
            [True, True, False],
            id="a message above the part passes once and leaves a debt",
        ),
        pytest.param([(HOUR, 8), (0, 1)], [True, False], id="a clock that goes back gives nothing"),
    ],
)
def test_spoke_writes_its_part_of_a_log_in_its_hours(
    writes: list[tuple[float, int]], expected: list[bool]
) -> None:
    found = budget()
    assert [write(found, size * MIB, at) for at, size in writes] == expected


def test_many_small_messages_wait_for_their_pace_and_are_not_refused() -> None:
    found = budget()
    assert all(write(found, 1, 0.0) for _ in range(10))
    assert not found.lacks(1, 0.0)
    assert 0 < found.wait(0.0) <= 0.001
    assert write(found, 1, 0.001)


def test_shares_of_all_spokes_together_are_half_of_a_view() -> None:
    for spokes in (0, 1, 3, 70):
        assert share_of(1000, spokes) * spokes <= 500
