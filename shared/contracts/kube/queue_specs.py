"""What the spec of a ClusterQueue or Cohort lists, in `v1beta1` and in `v1beta2`: flavors, quotas, checks.

For whoever looks through a spec that an API server has accepted. Quota reads it field by field, with the
path of each (`services/quota/wire/inbound.py`), and so does what names paths to a user.
"""

from collections.abc import Iterator, Mapping
from typing import Any


def flavors_of(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the entries of `resourceGroups[].flavors`, in their order."""
    groups = spec.get("resourceGroups")
    for group in groups if isinstance(groups, list) else ():
        yield from group.get("flavors") or []


def flavor_names(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of the flavors."""
    return (str(flavor.get("name")) for flavor in flavors_of(spec))


def quotas_of(spec: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Yield (flavor, resource) and its entry of `resources`: `nominalQuota` and the limits."""
    for flavor in flavors_of(spec):
        for quota in flavor.get("resources") or []:
            yield (str(flavor.get("name")), str(quota.get("name"))), quota


def check_names(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the admission checks of a ClusterQueue: `admissionChecksStrategy`, then v1beta1's list."""
    strategy = spec.get("admissionChecksStrategy") or {}
    for rule in strategy.get("admissionChecks") or []:
        yield str(rule.get("name"))
    yield from map(str, spec.get("admissionChecks") or [])
