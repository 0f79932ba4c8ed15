"""What of a pod's requests quota counts, and as what: excluded prefixes and transformations. Pure.

The rules are Kueue's (`Configuration.resources`, `research/kueue.md` 3.5): first what is excluded is
dropped, then each resource with a transformation generates others, and stays or goes itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from types import MappingProxyType
from typing import Final

from shared.contracts.kube.quantities import NANO

__all__ = ["AS_ASKED", "Amounts", "Counting", "Transformation"]

Amounts = dict[str, int]
"""Resource to billionths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformation:
    """What one resource is counted as."""

    retain: bool = True
    """Whether it is counted as itself too."""

    outputs: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Resource to billionths of it for each unit of the input. Less than nothing is an allowance."""

    multiply_by: str = ""
    """Another resource by whose amount the outputs are multiplied; empty, or not asked for: by none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counting:
    """How requests become what quota counts."""

    excluded: tuple[str, ...] = ()
    """Prefixes of resources that quota does not look at."""

    transformations: Mapping[str, Transformation] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """By the name of their input."""

    def counted(self, asked: Amounts) -> Amounts:
        """What one pod that asks this is counted as. `asked` is not changed."""
        kept = {
            resource: value
            for resource, value in asked.items()
            if not resource.startswith(self.excluded)
        }
        if not any(resource in self.transformations for resource in kept):
            return kept
        retained: Amounts = {}
        generated: dict[str, Fraction] = {}
        for resource, value in kept.items():
            found = self.transformations.get(resource)
            if found is None or found.retain:
                retained[resource] = value
            if found is not None:
                times = Fraction(value, NANO) * _times(found, kept)
                for output, each in found.outputs.items():
                    generated[output] = generated.get(output, Fraction()) + times * each
        # An allowance reduces what is generated, never what somebody asked for by that name.
        for resource, exact in generated.items():
            retained[resource] = retained.get(resource, 0) + max(0, ceil(exact))
        return retained


def _times(found: Transformation, asked: Amounts) -> Fraction:
    if not found.multiply_by or found.multiply_by not in asked:
        return Fraction(1)
    return Fraction(asked[found.multiply_by], NANO)


AS_ASKED: Final = Counting()
"""Everything is counted as it is asked for."""
