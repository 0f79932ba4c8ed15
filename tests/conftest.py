"""Options of the whole suite."""

import pytest
from hypothesis import settings

# The suite asks the same examples every time, so that a change is judged by what it changed.
# `pytest --hypothesis-profile=search -k …` looks for new ones.
settings.register_profile("same", derandomize=True)
settings.register_profile("search", max_examples=5_000, print_blob=True)
settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing"
    )


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))
