"""Turns what a pod requests into what quota counts: excluded prefixes and transformations. Pure.

The rules are those of `resources` in Kueue's Configuration: resources with an excluded prefix are dropped
first, then each resource with a transformation produces others, and is kept or dropped itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from types import MappingProxyType
from typing import Final

from shared.contracts.kube.quantities import NANO

Amounts = dict[str, int]
"""Resource to amount in billionths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformation:
    """What one input resource produces."""

    retain: bool = True
    """True: the input counts too."""

    outputs: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """Resource to billionths for each unit of the input. A negative amount reduces other outputs."""

    multiply_by: str = ""
    """Resource whose amount multiplies the outputs; no effect if empty or not requested."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceTransformations:
    """All exclusions and transformations of a configuration."""

    excluded: tuple[str, ...] = ()
    """Prefixes of resources that quota ignores."""

    by_input: Mapping[str, Transformation] = field(default_factory=lambda: MappingProxyType({}))

    def apply(self, requests: Amounts) -> Amounts:
        """Return what quota counts for one pod with these requests. `requests` does not change."""
        kept = {
            resource: value
            for resource, value in requests.items()
            if not resource.startswith(self.excluded)
        }
        if not any(resource in self.by_input for resource in kept):
            return kept
        retained: Amounts = {}
        produced: dict[str, Fraction] = {}
        for resource, value in kept.items():
            transformation = self.by_input.get(resource)
            if transformation is None or transformation.retain:
                retained[resource] = value
            if transformation is not None:
                factor = Fraction(value, NANO) * _multiplier(transformation, kept)
                for output, each in transformation.outputs.items():
                    produced[output] = produced.get(output, Fraction()) + factor * each
        # A negative sum never reduces what the pod requests under the same name.
        for resource, exact in produced.items():
            retained[resource] = retained.get(resource, 0) + max(0, ceil(exact))
        return retained


def _multiplier(transformation: Transformation, requests: Amounts) -> Fraction:
    by = transformation.multiply_by
    return Fraction(requests[by], NANO) if by and by in requests else Fraction(1)


NO_TRANSFORMATIONS: Final = ResourceTransformations()
"""Quota counts every request as it is."""
