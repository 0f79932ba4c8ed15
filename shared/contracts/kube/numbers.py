"""Numbers in texts that somebody else wrote: headers, annotations, resource versions."""

from typing import Final

DIGITS_MAX: Final = 19
"""As many as the largest number of 64 bits has. Python itself refuses 4,301 with an error."""


def whole_number(text: str) -> int | None:
    """The number that ASCII digits write; None for any other text, also for more than `DIGITS_MAX`.

    `str.isdigit` and `str.isdecimal` are true for digits of other scripts, and say nothing of length.
    """
    if len(text) > DIGITS_MAX or not (text.isascii() and text.isdigit()):
        return None
    return int(text)
