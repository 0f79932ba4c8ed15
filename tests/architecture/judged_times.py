"""Tests that judge time, for the rule that finds them."""

from typing import Final

JUDGED_TIMES: Final = {
    "a test measures CPU": "began = time.process_time()",
    "a test imports a clock for measuring": "from time import perf_counter",
    "a span of real time has an upper bound": """
def test():
    began = time.monotonic()
    assert time.monotonic() - began < 5
""",
    "a span with a name has an upper bound": """
async def test():
    began = loop.time()
    seconds = loop.time() - began
    assert 2 > seconds
""",
    "a time is near to now": """
def test():
    assert abs(written - datetime.now(UTC)) < timedelta(seconds=30)
""",
    "a pace is judged": """
async def test():
    began = loop.time()
    seconds = 1 + int(loop.time() - began)
    assert len(made) <= PER_SECOND * seconds
""",
    "a deadline is asserted": """
def test():
    late = time.monotonic() + 5
    while not done():
        assert time.monotonic() < late
""",
    "a test knows all that stands on standard error": """
def test():
    _, out, err = sluice("simulate")
    assert err == ""
""",
    "a test knows with what standard error begins": """
def test():
    assert done.stderr.startswith("sluice: ")
""",
}
"""Forms in which a test judges time."""
