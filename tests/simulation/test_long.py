"""`make test-long TENTH=…` leaves nothing out forever."""

from tests.tenths import tenth_of

DAY = 20_780
"""Days since 1970: what CI gives."""


def test_ten_days_run_every_long_test_once() -> None:
    tests = [f"test {number}" for number in range(47)]
    run = [test for day in range(DAY, DAY + 10) for test in tenth_of(tests, day)]
    assert sorted(run) == sorted(tests)
