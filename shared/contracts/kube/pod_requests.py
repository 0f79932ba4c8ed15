"""What a pod requests in all: the sum that the Kubernetes scheduler makes. Pure.

Amounts are billionths, so that nothing is rounded twice.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from shared.contracts.kube.bodies import map_at, maps_at
from shared.contracts.kube.quantities import parse_quantity

Amounts = dict[str, int]
"""Resource to billionths."""

_POD_LEVEL: Final = ("cpu", "memory", "hugepages-")
"""Resources of which a pod as a whole may say what it requests."""

SIDECAR: Final = "Always"
"""`restartPolicy` of an init container that runs on beside the others."""


class Start(NamedTuple):
    """An init container."""

    requests: Mapping[str, int]
    sidecar: bool


def total_of(
    containers: Iterable[Mapping[str, int]],
    starts: Iterable[Start],
    pod_level: Mapping[str, int] | None,
    overhead: Mapping[str, int],
) -> Amounts:
    """Return the larger of what the running pod needs and what its start needs at most.

    Init containers run one after the other, beside the sidecars that started before them.
    """
    total: Amounts = {}
    for container in containers:
        _add(total, container)
    sidecars: Amounts = {}
    starting: Amounts = {}
    for start in starts:
        if start.sidecar:
            _add(total, start.requests)
            _add(sidecars, start.requests)
            moment = sidecars
        else:
            moment = dict(sidecars)
            _add(moment, start.requests)
        _raise_to(starting, moment)
    _raise_to(total, starting)
    for resource, value in (pod_level or {}).items():
        if resource.startswith(_POD_LEVEL):
            total[resource] = value
    _add(total, overhead)
    return total


def requested_by(spec: Any) -> Amounts:
    """Return what a pod requests, with limits where requests are missing. Raises `QuantityError`.

    The API server has filled in what LimitRanges and a RuntimeClass give before anybody reads the pod.
    """
    return total_of(
        [_of_part(one) for one in maps_at(spec, "containers")],
        [
            Start(_of_part(one), one.get("restartPolicy") == SIDECAR)
            for one in maps_at(spec, "initContainers")
        ],
        _of_part(spec),
        _read(map_at(spec, "overhead")),
    )


def wanted_by(part: Any) -> dict[str, Any]:
    """Return the requests of a container or a pod as they stand: its limit where a resource has none."""
    return {**map_at(part, "resources", "limits"), **map_at(part, "resources", "requests")}


def _of_part(part: Any) -> Amounts:
    return _read(wanted_by(part))


def _read(quantities: Mapping[str, Any]) -> Amounts:
    return {resource: parse_quantity(str(text)) for resource, text in quantities.items()}


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for resource, value in more.items():
        total[resource] = total.get(resource, 0) + value


def _raise_to(total: Amounts, least: Mapping[str, int]) -> None:
    for resource, value in least.items():
        total[resource] = max(value, total.get(resource, value))
