"""What pods really ask: defaults, limits, overhead, init and sidecar containers. Pure.

The order is Kueue's (`research/kueue.md` 3.5): RuntimeClass overhead, LimitRange defaults, limits as
missing requests, then the sum that Kubernetes itself makes, and last what quota counts of it
(`counting`). Amounts are billionths until they are printed, so nothing is rounded twice.

Unlike there, pods of a RuntimeClass that does not exist, or past the ratio of limit to request that a
LimitRange allows, wait with that reason: the API server would refuse every one of them, and the quota of
the admission would be held for nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import orjson

from services.classifier.projection.pod_templates import (
    ANYWHERE,
    FieldError,
    Placement,
    mapping,
    mappings,
    placement,
    template_spec,
)
from services.classifier.projection.resource_transformations import AS_ASKED, Amounts, Counting
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.quantities import (
    NANO,
    QuantityError,
    amount,
    format_quantity,
    parse_quantity,
)
from shared.contracts.messages.workloads import PodSet

__all__ = ["RequestsError", "pod_sets_asked"]

ABOVE_LIMITS: Final = "requests must not exceed its limits"
ABOVE_MAX: Final = "requests must not be above the limitRange max"
BELOW_MIN: Final = "requests must not be below the limitRange min"
ABOVE_RATIO: Final = (
    "limits must not exceed requests by more than the limitRange maxLimitRequestRatio"
)
RESERVED_KEY: Final = "the key is reserved for internal kueue use"

_POD_LEVEL: Final = ("cpu", "memory", "hugepages-")
_BINARY: Final = ("memory", "ephemeral-storage", "storage", "hugepages-")


class RequestsError(ValueError):
    """What is asked breaks a rule. `pod_sets` is what it would ask if it did not."""

    def __init__(self, problems: list[str], pod_sets: list[PodSet]) -> None:
        super().__init__("; ".join(problems))
        self.pod_sets = pod_sets


@dataclass(slots=True)
class _Range:
    """All LimitRange items of one type: defaults of the first, the tightest bounds."""

    default: Amounts = field(default_factory=dict)
    default_request: Amounts = field(default_factory=dict)
    least: Amounts = field(default_factory=dict)
    most: Amounts = field(default_factory=dict)
    ratio: Amounts = field(default_factory=dict)
    """How many times its request a limit may be."""

    def add(self, item: Object) -> None:
        for resource, value in _amounts(item.get("max")).items():
            self.most[resource] = min(value, self.most.get(resource, value))
        for resource, value in _amounts(item.get("min")).items():
            self.least[resource] = max(value, self.least.get(resource, value))
        for resource, value in _amounts(item.get("maxLimitRequestRatio")).items():
            self.ratio[resource] = min(value, self.ratio.get(resource, value))
        self.default = {**_amounts(item.get("default")), **self.default}
        self.default_request = {**_amounts(item.get("defaultRequest")), **self.default_request}


@dataclass(slots=True)
class _Container:
    path: str
    requests: Amounts
    limits: Amounts
    sidecar: bool


@dataclass(slots=True)
class _Pod:
    """One pod of a set, as it is adjusted step by step."""

    path: str
    containers: list[_Container]
    init_containers: list[_Container]
    level: _Container | None
    """Pod-level resources, where the spec has them."""

    overhead: Amounts

    def every_container(self) -> Iterable[_Container]:
        yield from self.init_containers
        yield from self.containers

    def all_parts(self) -> Iterable[_Container]:
        """Containers, and what is said for the whole pod."""
        yield from self.every_container()
        if self.level is not None:
            yield self.level


def pod_sets_asked(
    raw: list[Object],
    *,
    limit_ranges: list[Object],
    runtime_class: Callable[[str], Object | None],
    counting: Counting = AS_ASKED,
) -> list[PodSet]:
    """Turn `Workload.spec.podSets` into what each pod asks, as quota counts it.

    Raises `RequestsError` where a rule is broken: the workload then waits with that reason.
    """
    problems: list[str] = []
    broken = _Broken()
    ranges = _summarise(problems, limit_ranges)
    pod_sets = []
    for index, pod_set in enumerate(raw):
        requests: Amounts = {}
        where = ANYWHERE
        problems += _counts(pod_set, f"spec.podSets[{index}]")
        try:
            spec, path = template_spec(pod_set, f"spec.podSets[{index}]")
            pod = _read(spec, path, runtime_class)
            _adjust(pod, ranges)
            requests = _total(pod, attrgetter("requests"))
            problems += _unasked(pod)
            broken.look(pod, requests, ranges)
            where = placement(spec, path)
        except FieldError as error:
            problems.append(str(error))
        pod_sets.append(_pod_set(pod_set, where, counting.counted(requests)))
    problems += broken.told()
    if problems:
        raise RequestsError(problems, pod_sets)
    return pod_sets


def _amounts(resources: Any, path: str = "") -> Amounts:
    amounts = {}
    for resource, text in mapping(resources, path).items():
        try:
            amounts[resource] = parse_quantity(str(text))
        except QuantityError as error:
            raise FieldError(f"{path}[{resource}]", error) from error
    return amounts


def _summarise(problems: list[str], limit_ranges: list[Object]) -> dict[str, _Range]:
    ranges: dict[str, _Range] = {}
    for limit_range in limit_ranges:
        for item in (limit_range.get("spec") or {}).get("limits") or []:
            try:
                ranges.setdefault(str(item.get("type")), _Range()).add(item)
            except FieldError as error:
                problems.append(f"LimitRange {limit_range['metadata']['name']}{error}")
    return ranges


def _read(spec: Object, path: str, runtime_class: Callable[[str], Object | None]) -> _Pod:
    resources = spec.get("resources")
    return _Pod(
        path=path,
        containers=_containers(spec.get("containers"), f"{path}.containers"),
        init_containers=_containers(spec.get("initContainers"), f"{path}.initContainers"),
        level=_container({"resources": resources}, path) if resources else None,
        overhead=_overhead(spec, path, runtime_class),
    )


def _containers(raw: Any, path: str) -> list[_Container]:
    return [_container(container, where) for where, container in mappings(raw, path)]


def _container(raw: Object, path: str) -> _Container:
    resources = mapping(raw.get("resources"), f"{path}.resources")
    return _Container(
        path=path,
        requests=_amounts(resources.get("requests"), f"{path}.resources.requests"),
        limits=_amounts(resources.get("limits"), f"{path}.resources.limits"),
        sidecar=raw.get("restartPolicy") == "Always",
    )


def _overhead(spec: Object, path: str, runtime_class: Callable[[str], Object | None]) -> Amounts:
    """The pod's own overhead; else its RuntimeClass's."""
    name = spec.get("runtimeClassName")
    found = runtime_class(str(name)) if name else None
    if name and found is None:
        raise FieldError(f"{path}.runtimeClassName", f'RuntimeClass "{name}" not found')
    if spec.get("overhead"):
        return _amounts(spec["overhead"], f"{path}.overhead")
    fixed = ((found or {}).get("overhead") or {}).get("podFixed")
    return _amounts(fixed, f"RuntimeClass {name}.overhead.podFixed")


def _adjust(pod: _Pod, ranges: dict[str, _Range]) -> None:
    """Defaults where nothing is said, then limits where no request is said."""
    by_type = [("Container", container) for container in pod.every_container()]
    if pod.level is not None:
        by_type.append(("Pod", pod.level))
    for type_, container in by_type:
        if type_ in ranges:
            container.limits = {**ranges[type_].default, **container.limits}
            container.requests = {**ranges[type_].default_request, **container.requests}
        container.requests = {**container.limits, **container.requests}


def _total(pod: _Pod, part: Callable[[_Container], Amounts]) -> Amounts:
    """What one pod needs: all containers and sidecars, or the greediest moment of its start."""
    total: Amounts = {}
    for container in pod.containers:
        _add(total, part(container))
    sidecars: Amounts = {}
    starting: Amounts = {}
    for container in pod.init_containers:
        if container.sidecar:
            _add(total, part(container))
            _add(sidecars, part(container))
            moment = sidecars
        else:
            moment = dict(sidecars)
            _add(moment, part(container))
        _raise(starting, moment)
    _raise(total, starting)
    if pod.level is not None:
        for resource, value in part(pod.level).items():
            if resource.startswith(_POD_LEVEL):
                total[resource] = value
    _add(total, pod.overhead)
    return total


def _add(total: Amounts, more: Amounts) -> None:
    for resource, value in more.items():
        total[resource] = total.get(resource, 0) + value


def _raise(total: Amounts, least: Amounts) -> None:
    for resource, value in least.items():
        total[resource] = max(value, total.get(resource, value))


def _counts(pod_set: Object, path: str) -> list[str]:
    """Pods fewer than none, or a least number above the number."""
    count, least = pod_set.get("count", 1), pod_set.get("minCount")
    if count < 0:
        return [f"{path}.count: Invalid value: {count}: must be greater than or equal to 0"]
    if least is not None and not 0 < least <= count:
        rule = "minCount should be positive and less or equal to count"
        return [f"{path}.minCount: Invalid value: {least}: {rule}"]
    return []


def _unasked(pod: _Pod) -> list[str]:
    """What nobody may ask for: `pods`, which is counted anyway, and less than nothing."""
    problems = []
    for container in pod.all_parts():
        if "pods" in container.requests or "pods" in container.limits:
            problems.append(f"{container.path}.resources[pods]: {RESERVED_KEY}")
        problems += _negative(container.requests, f"{container.path}.resources.requests")
    return problems + _negative(pod.overhead, f"{pod.path}.overhead")


def _negative(amounts: Amounts, path: str) -> list[str]:
    return [
        f"{path}[{resource}]: Invalid value: {format_quantity(value)}: "
        "must be greater than or equal to 0"
        for resource, value in amounts.items()
        if value < 0
    ]


@dataclass(slots=True)
class _Broken:
    """Limits and LimitRanges that are not kept, in the reference's words."""

    limits: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)

    def look(self, pod: _Pod, total: Amounts, ranges: dict[str, _Range]) -> None:
        """Look at one pod set; `total` is what one pod of it asks."""
        for part in pod.all_parts():
            path = f"{part.path}.resources" if part is pod.level else part.path
            self.limits += _told(path, _greater(part.requests, part.limits), ABOVE_LIMITS)
        if (range_ := ranges.get("Container")) is not None:
            for container in pod.every_container():
                asked = {**container.limits, **container.requests}
                most, least = dict(asked), dict(asked)
                for resource, value in container.limits.items():
                    most[resource] = max(most[resource], value)
                    least[resource] = min(least[resource], value)
                self._within(range_, container.path, most, least)
                self._proportioned(range_, container.path, container.requests, container.limits)
        if (range_ := ranges.get("Pod")) is not None:
            self._within(range_, pod.path, total, total)
            self._proportioned(range_, pod.path, total, _total(pod, attrgetter("limits")))

    def _within(self, range_: _Range, path: str, most: Amounts, least: Amounts) -> None:
        self.ranges += _told(path, _greater(most, range_.most), ABOVE_MAX)
        self.ranges += _told(path, _greater(range_.least, least), BELOW_MIN)

    def _proportioned(self, range_: _Range, path: str, requests: Amounts, limits: Amounts) -> None:
        """Who names no request or no limit breaks the ratio as well."""
        broken = [
            resource
            for resource, ratio in sorted(range_.ratio.items())
            if not 0 < limits.get(resource, 0) * NANO <= requests.get(resource, 0) * ratio
        ]
        self.ranges += _told(path, broken, ABOVE_RATIO)

    def told(self) -> list[str]:
        """What is broken: limits, and only where those are kept, ranges."""
        if self.limits:
            return [f"resources validation failed: {_aggregate(self.limits)}"]
        if self.ranges:
            return [f"resources didn't satisfy LimitRange constraints: {_aggregate(self.ranges)}"]
        return []


def _greater(amounts: Amounts, bounds: Amounts) -> list[str]:
    """Resources in both whose amount, as quota counts it, is above the bound."""
    return sorted(
        resource
        for resource, value in amounts.items()
        if resource in bounds and _counted(resource, value) > _counted(resource, bounds[resource])
    )


def _counted(resource: str, value: int) -> int:
    """Compared as Kueue compares: rounded up to what quota counts."""
    return amount(resource, format_quantity(value)) if value >= 0 else value


def _told(path: str, resources: list[str], rule: str) -> list[str]:
    if not resources:
        return []
    return [f"{path}: Invalid value: {orjson.dumps(resources).decode()}: {rule}"]


def _aggregate(problems: list[str]) -> str:
    different = list(dict.fromkeys(problems))
    return different[0] if len(different) == 1 else f"[{', '.join(different)}]"


def _pod_set(raw: Object, where: Placement, requests: Amounts) -> PodSet:
    return PodSet(
        name=str(raw.get("name", "main")),
        count=int(raw.get("count", 1)),
        min_count=raw.get("minCount"),
        requests={
            resource: format_quantity(value, binary=resource.startswith(_BINARY))
            for resource, value in requests.items()
        },
        node_selector=where.node_selector,
        tolerations=where.tolerations,
        node_affinity=where.node_affinity,
    )
