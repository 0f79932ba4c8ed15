"""Rules for the provider's own keys of the host configuration (`dynamic.<platform>.ami`…), as data.

A platform that breaks a rule is refused when the configuration is read, and not when a TaskRun waits
for a machine.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
_FLAGS: Final = frozenset({"true", "false"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterRules:
    """The rules of one provider type."""

    required: tuple[str, ...] = ()
    integers: Mapping[str, int] = field(default_factory=dict)
    """Key of an integer to its minimum."""

    decimals: Mapping[str, float] = field(default_factory=dict)
    """Key of a number, with or without decimal point, to its minimum."""

    flags: tuple[str, ...] = ()
    """Keys whose value is `true` or `false`."""

    complete_groups: tuple[tuple[str, ...], ...] = ()
    """Groups of keys: either all keys of a group are given, or none."""

    def first_error(self, given: Mapping[str, str]) -> str | None:
        """The first broken rule as `<key>: <reason>`; None if `given` keeps all rules."""
        for key in self.required:
            if not given.get(key):
                return f"{key}: required"
        for least, number in ((self.integers, False), (self.decimals, True)):
            for key in least:
                if (value := given.get(key)) and not _is_number(value, least[key], point=number):
                    what = "a number" if number else "a whole number"
                    return (
                        f"{key}: invalid value '{value}': must be {what}, at least {least[key]:g}"
                    )
        for key in self.flags:
            if given.get(key) and given[key] not in _FLAGS:
                return f"{key}: invalid value '{given[key]}': must be true or false"
        for group in self.complete_groups:
            missing = [key for key in group if not given.get(key)]
            if missing and len(missing) < len(group):
                return (
                    f"{missing[0]}: required with {' and '.join(k for k in group if given.get(k))}"
                )
        return None


def _is_number(value: str, least: float, *, point: bool) -> bool:
    found = _NUMBER.fullmatch(value)
    return found is not None and (point or found.group(1) is None) and float(value) >= least


NO_RULES: Final = ParameterRules()
