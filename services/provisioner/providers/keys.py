"""What a type's own keys of the host configuration must say (`research/tekton.md` 2.5), as data.

A platform that breaks a rule is refused when the configuration is read, not when somebody waits for a
machine of it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["AWS", "IBM_POWER", "IBM_VPC", "NO_RULES", "RULES", "Keys"]

_NUMBER: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
_FLAGS: Final = frozenset({"true", "false"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The rules of one type."""

    required: tuple[str, ...] = ()
    whole: Mapping[str, int] = field(default_factory=dict)
    """Key of a whole number to the least that it may be."""

    decimal: Mapping[str, float] = field(default_factory=dict)
    """The same, with a point allowed."""

    flags: tuple[str, ...] = ()
    """`true` or `false`."""

    together: tuple[tuple[str, ...], ...] = ()
    """Keys of which all are given, or none."""

    def mistake(self, given: Mapping[str, str]) -> str | None:
        """The first rule that is broken, as `<key>: <why>`; None if there is none."""
        for key in self.required:
            if not given.get(key):
                return f"{key}: required"
        for least, number in ((self.whole, False), (self.decimal, True)):
            for key in least:
                if (value := given.get(key)) and not _is_number(value, least[key], point=number):
                    what = "a number" if number else "a whole number"
                    return (
                        f"{key}: invalid value '{value}': must be {what}, at least {least[key]:g}"
                    )
        for key in self.flags:
            if given.get(key) and given[key] not in _FLAGS:
                return f"{key}: invalid value '{given[key]}': must be true or false"
        for group in self.together:
            missing = [key for key in group if not given.get(key)]
            if missing and len(missing) < len(group):
                return (
                    f"{missing[0]}: required with {' and '.join(k for k in group if given.get(k))}"
                )
        return None


def _is_number(value: str, least: float, *, point: bool) -> bool:
    found = _NUMBER.fullmatch(value)
    return found is not None and (point or found.group(1) is None) and float(value) >= least


NO_RULES: Final = Keys()

AWS: Final = Keys(
    required=("region", "ami", "instance-type", "aws-secret"),
    whole={"disk": 1, "iops": 1, "throughput": 1},
    flags=("strict-public-address", "spot"),
    together=(("tenancy", "host-resource-group-arn", "license-configuration-arn"),),
)

IBM_VPC: Final = Keys(
    required=("vpc", "key", "subnet", "image-id", "region", "url", "profile", "secret"),
    whole={"disk": 1},
    flags=("private-ip",),
)

IBM_POWER: Final = Keys(
    required=("crn", "network", "system", "image", "key", "url", "secret"),
    whole={"disk": 100},
    decimal={"cores": 0.25, "memory": 2},
)

RULES: Final[Mapping[str, Keys]] = {"aws": AWS, "ibmz": IBM_VPC, "ibmp": IBM_POWER}
"""By type."""
