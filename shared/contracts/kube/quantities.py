"""Kubernetes quantities, exactly. No float ever touches an amount.

A quantity is a decimal number with an optional suffix (`500m`, `1.5Gi`, `12e6`). Inside it is an
integer of billionths, the finest that Kubernetes keeps; finer parts are rounded up, as there.
What Kubernetes refuses is refused here too: NaN, Infinity,
underscores, blanks, digits of other scripts, exponents without end.
"""

import re
from typing import Final

NANO: Final = 1_000_000_000
"""Billionths in one unit."""

QUANTITY_MAX: Final = (2**63 - 1) * NANO
"""Kubernetes caps quantities at the largest int64."""

TEXT_MAX: Final = 64
EXPONENT_MAX: Final = 18
"""Limits of the work for one quantity. Nobody writes more digits; 10^18 is `E`, the largest suffix."""

_QUANTITY: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)

_DECIMAL: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

BINARY_RESOURCES: Final = ("memory", "ephemeral-storage", "storage", "hugepages-")
"""Beginnings of the names of resources that are written in powers of 1,024."""


class QuantityError(ValueError):
    """A text that is no Kubernetes quantity, or one that no cluster could hold."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(f"{text[:TEXT_MAX]!r} is no quantity: {why}")


def parse_quantity(text: str) -> int:
    """Read a quantity as billionths of its unit. Raises `QuantityError`."""
    value = _parse(text)
    if value > QUANTITY_MAX:
        raise QuantityError(text, "larger than 9223372036854775807")
    return value


def _parse(text: str) -> int:
    """`parse_quantity` without the largest value."""
    if len(text) > TEXT_MAX:
        raise QuantityError(text, f"longer than {TEXT_MAX} characters")
    match = _QUANTITY.fullmatch(text)
    if match is None or not (match["whole"] or match["fraction"]):
        raise QuantityError(text, "expected a number with a suffix like 500m, 1.5Gi or 2e3")
    fraction = match["fraction"] or ""
    digits = int((match["whole"] or "0") + fraction)
    value = _scaled(text, digits, len(fraction), match["suffix"] or "", match["exponent"])
    return -value if match["sign"] == "-" else value


def _scaled(text: str, digits: int, places: int, suffix: str, exponent: str | None) -> int:
    """`digits · 10^-places · suffix` in billionths, rounded up."""
    if suffix in _BINARY:
        numerator = digits * NANO << _BINARY[suffix]
        return _ceil(numerator, places)
    power = int(exponent) if exponent is not None else _DECIMAL[suffix]
    if abs(power) > EXPONENT_MAX:
        raise QuantityError(text, f"exponent beyond ±{EXPONENT_MAX}")
    shift = 9 + power - places
    return _ceil(digits, -shift)


def _ceil(value: int, places: int) -> int:
    """`value / 10^places`, rounded up; a negative number of places multiplies."""
    if places <= 0:
        return value * int(10**-places)
    return -(-value // int(10**places))


def amount(resource: str, text: str) -> int:
    """What quota counts: thousandths of `cpu`, whole units of anything else, rounded up.

    Raises `QuantityError`, also for a negative quantity: nobody asks for less than nothing.
    """
    value = parse_quantity(text)
    if value < 0:
        raise QuantityError(text, "must be greater than or equal to 0")
    return -(-value // _unit(resource))


def recorded_amount(resource: str, text: str) -> int:
    """As `amount`, for what is on record already: out of range, the nearest amount in range counts.

    Raises `QuantityError` only for a text that is no quantity.
    """
    value = -(-_parse(text) // _unit(resource))
    return min(max(0, value), amount_max(resource))


def nearest_amount(resource: str, text: str) -> int:
    """As `recorded_amount`; 0 for what is no quantity."""
    try:
        return recorded_amount(resource, text)
    except QuantityError:
        return 0


def amount_max(resource: str) -> int:
    """The largest amount that `amount` reads and `format_amount` writes."""
    return QUANTITY_MAX // _unit(resource)


def _unit(resource: str) -> int:
    """Billionths in one step of an amount."""
    return NANO // 1000 if resource == "cpu" else NANO


def format_amount(resource: str, value: int) -> str:
    """The canonical quantity of an amount as `amount` counts it, at most `amount_max`.

    Whoever reads it can parse it: a sum of amounts may be larger than any quantity.
    """
    value = min(value, amount_max(resource))
    if resource == "cpu":
        return format_quantity(value * (NANO // 1000))
    return format_quantity(value * NANO, binary=resource.startswith(BINARY_RESOURCES))


def format_quantity(value: int, *, binary: bool = False) -> str:
    """The shortest exact form, as Kubernetes prints it: `4500m`, `2`, `1k`, `2Gi`."""
    if value == 0:
        return "0"
    sign, value = ("-", -value) if value < 0 else ("", value)
    if binary and value % NANO == 0 and value >= 1024 * NANO:
        whole = value // NANO
        for suffix, bits in reversed(_BINARY.items()):
            if whole % (1 << bits) == 0:
                return f"{sign}{whole >> bits}{suffix}"
        return f"{sign}{whole}"
    for suffix, power in reversed(_DECIMAL.items()):
        unit = 10 ** (9 + power)
        if value % unit == 0:
            return f"{sign}{value // unit}{suffix}"
    raise AssertionError("billionths always divide")
