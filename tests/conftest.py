"""Options of the whole suite."""

import gc
import logging
import os
import sys
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

from tests.tenths import TENTHS, tenth_of

# The suite asks the same examples every time, so that a change is judged by what it changed.
# `pytest --hypothesis-profile=search -k …` looks for new ones.
# No example has a deadline: on a loaded machine every one may take a second.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("search", max_examples=5_000, print_blob=True, deadline=None)
settings.load_profile("same")

# Each worker rewrites every test, and each process that a test starts imports the services: without
# byte code on disk, which some environments forbid, both compile the same files again and again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

COLLECT_AFTER = 50_000
"""Allocations between two collections of garbage. Python's 700 take a fifth of the time of a world."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write golden files instead of comparing"
    )
    parser.addoption(
        "--tenth",
        type=int,
        help="run every tenth of the chosen tests; of the number, its last digit",
    )


def pytest_report_header(config: pytest.Config) -> list[str]:
    tenth = config.getoption("--tenth")
    return [] if tenth is None else [f"a tenth of the tests: repeat it with TENTH={tenth % TENTHS}"]


@pytest.hookimpl(trylast=True)  # After `-m` and `-k`: it divides what they leave.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tenth = config.getoption("--tenth")
    if tenth is None:
        return
    mine = tenth_of(items, tenth)
    config.hook.pytest_deselected(items=sorted({*items} - {*mine}, key=str))
    items[:] = mine


def pytest_collection_finish() -> None:
    """What was imported stays: no collection of garbage looks at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 10, 10)


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
