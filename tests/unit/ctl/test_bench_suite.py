"""How `make bench` compares two runs."""

import pytest

from services.ctl.bench.suite import compared


def a_run(result: str, loop: float) -> dict[str, object]:
    return {"result": result, "status": 0, "calibration_ms": loop}


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        (a_run("rest: 1.00 %, 250 MiB", 100.0), None, ""),
        (
            a_run("rest: 1.00 %, 250 MiB", 150.0),
            a_run("rest: 2.00 %, 1,000 MiB", 100.0),
            "x 0.50 0.25 (loop x 1.50)",
        ),
        (a_run("took 5 s", 100.0), a_run("took 0 s", 100.0), "x - (loop x 1.00)"),
        (a_run("not done after 1800 s", 100.0), a_run("rest: 2 %, 9 MiB", 100.0), ""),
    ],
)
def test_each_number_is_divided_by_that_of_the_earlier_run(
    now: dict[str, object], before: dict[str, object] | None, expected: str
) -> None:
    assert compared(now, before) == expected
