"""Numbers in texts that somebody else wrote: headers, annotations, resource versions."""

import re
from typing import Final

DIGITS_MAX: Final = 19
"""As many as the largest number of 64 bits has. Python itself refuses 4,301 with an error."""

INT32_MAX: Final = 2**31 - 1
"""The largest number of Kubernetes' fields of format int32: counts, seconds, priorities."""

INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
"""An integer as Go reads it, of so few digits that it fits into 64 bits."""

SHORT_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")
"""An integer of as many digits as `INT32_MAX` has; it may be larger."""


def whole_number(text: str) -> int | None:
    """The number that ASCII digits write; None for any other text, also for more than `DIGITS_MAX`.

    `str.isdigit` and `str.isdecimal` are true for digits of other scripts, and say nothing of length.
    """
    if len(text) > DIGITS_MAX or not (text.isascii() and text.isdigit()):
        return None
    return int(text)


def is_at_least(version: str, least: str) -> bool:
    """Whether resource version `version` is `least` or newer.

    Numeric versions grow (KEP-5504); others can only be compared for equality.
    """
    ours, theirs = whole_number(version), whole_number(least)
    return version == least if ours is None or theirs is None else ours >= theirs
