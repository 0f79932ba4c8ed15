"""What a test may ask of a clock."""

from tests.architecture.clocks import no_test_judges_time
from tests.architecture.sources import House, Source


def test_lower_bound_and_bracket_of_a_time_are_allowed() -> None:
    text = """
def test():
    before = datetime.now(UTC)
    began = time.monotonic()
    assert time.monotonic() - began >= 0.5
    assert before <= written <= datetime.now(UTC)
"""

    assert not list(no_test_judges_time(House([Source("tests/unit/test_a.py", text)])))
