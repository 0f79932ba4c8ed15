"""Amounts of quota: exact integers, with a value for "no limit", and their text form.

`cpu` counts in thousandths, everything else in whole units, as Kueue counts. Python's integers do
not overflow; of Kueue's saturating arithmetic only the largest value remains, which means unlimited.
"""

from functools import cache
from typing import Final

INT64_MAX: Final = 2**63 - 1
"""The amount that Kueue treats as unlimited."""

UNLIMITED: Final = 1 << 100
"""Far above any real amount, so that sums and differences with it stay recognisable."""

_UNLIMITED_FROM: Final = 1 << 99
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_MASK: Final = (1 << 64) - 1
_BINARY: Final = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL: Final = ("k", "M", "G", "T", "P", "E")
_IN_BINARY: Final = ("memory", "ephemeral-storage", "hugepages-")


def unlimited_from(amount: int) -> int:
    """`amount`, or `UNLIMITED` from the largest 64-bit integer on."""
    return UNLIMITED if amount >= INT64_MAX else amount


def is_unlimited(amount: int) -> bool:
    """Whether `amount` is unlimited, or what is left of that after some use."""
    return amount >= _UNLIMITED_FROM


@cache
def resource_order(resource: str) -> tuple[int, str]:
    """Sort key of resource names: FNV-1a as in Kueue, so that flavor scans go in the same order."""
    digest = _FNV_OFFSET
    for byte in resource.encode():
        digest = ((digest ^ byte) * _FNV_PRIME) & _MASK
    return digest, resource


def show(resource: str, amount: int) -> str:
    """An amount as Kubernetes writes it: ``1500m``, ``3``, ``2Gi``, or `unlimited`."""
    if is_unlimited(amount):
        return "unlimited"
    if resource == "cpu":
        if amount % 1000:
            return f"{amount}m"
        amount //= 1000
    step, suffixes = (1024, _BINARY) if resource.startswith(_IN_BINARY) else (1000, _DECIMAL)
    suffix = ""
    for larger in suffixes:
        if amount == 0 or amount % step:
            break
        amount //= step
        suffix = larger
    return f"{amount}{suffix}"
