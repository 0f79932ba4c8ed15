"""A tenth of the tests, another each day: together they are all."""

from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

TENTHS: Final = 10


def tenth_of(items: Sequence[T], number: int) -> list[T]:
    """Return every tenth of `items`; of `number` only the last digit counts."""
    return list(items[number % TENTHS :: TENTHS])
