"""Options of the whole suite."""

import logging
from collections.abc import Iterator

import pytest
import structlog
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


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """What a command under test does to logging does not outlive the test."""
    handlers, level, before = logging.root.handlers[:], logging.root.level, structlog.get_config()
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    structlog.configure(**before)
    structlog.contextvars.clear_contextvars()
