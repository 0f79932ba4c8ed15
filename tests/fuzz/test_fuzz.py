"""A small share of `make fuzz`: the same examples each time."""

import logging

import pytest
import structlog

from tests.fuzz.border import Border, probe
from tests.fuzz.table import borders


@pytest.mark.parametrize("border", borders(), ids=str)
def test_border_raises_only_the_errors_that_it_declares(border: Border) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    assert probe(border, border.tested).problem is None
