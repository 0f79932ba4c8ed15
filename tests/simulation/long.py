"""What only `make test-long` runs."""

from typing import Any

import pytest


def long(value: object) -> Any:
    """Return `value` as a parameter of a test that `make test` leaves out."""
    return pytest.param(value, marks=pytest.mark.long)
