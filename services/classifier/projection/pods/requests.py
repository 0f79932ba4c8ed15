"""Computes what pods request: defaults, limits, overhead, init and sidecar containers. Pure.

The order is Kueue's: RuntimeClass overhead, LimitRange defaults, limits as missing requests, then the sum
that the Kubernetes scheduler makes, then `resource_transformations`. Amounts are billionths until they
are formatted, so that nothing is rounded twice.

One rule is stricter than Kueue's: pods above the ratio of limit to request that a LimitRange allows wait
with that reason. The API server would refuse every one of them, and their quota would stay unused.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import orjson

from services.classifier.projection.pods.pod_templates import (
    ANY_NODE,
    FieldError,
    Placement,
    mapping,
    mappings,
    placement,
    pod_spec_at,
)
from services.classifier.projection.pods.resource_transformations import (
    NO_TRANSFORMATIONS,
    Amounts,
    ResourceTransformations,
)
from services.classifier.projection.pods.size import bounded
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.numbers import INT32_MAX
from shared.contracts.kube.pod_requests import SIDECAR, Start, total_of
from shared.contracts.kube.quantities import (
    BINARY_RESOURCES,
    NANO,
    QUANTITY_MAX,
    QuantityError,
    amount,
    format_quantity,
    parse_quantity,
)
from shared.contracts.messages.workloads import PodSet

ABOVE_LIMITS: Final = "requests must not exceed its limits"
ABOVE_MAX: Final = "requests must not be above the limitRange max"
BELOW_MIN: Final = "requests must not be below the limitRange min"
ABOVE_RATIO: Final = (
    "limits must not exceed requests by more than the limitRange maxLimitRequestRatio"
)
"""Kubernetes keeps the number of pods in 32 bits."""

RESERVED_KEY: Final = "the key is reserved for internal kueue use"


class RequestsError(ValueError):
    """The requests break a rule. `pod_sets` are the pod sets regardless of it."""

    def __init__(self, problems: list[str], pod_sets: list[PodSet]) -> None:
        super().__init__("; ".join(problems))
        self.pod_sets = pod_sets


@dataclass(slots=True)
class _Limits:
    """All LimitRange items of one type: the first default wins, and the tightest bounds."""

    default: Amounts = field(default_factory=dict)
    default_request: Amounts = field(default_factory=dict)
    least: Amounts = field(default_factory=dict)
    most: Amounts = field(default_factory=dict)
    ratio: Amounts = field(default_factory=dict)
    """Largest quotient of limit and request."""

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
    """One pod of a set; `_apply_defaults` changes it."""

    path: str
    containers: list[_Container]
    init_containers: list[_Container]
    pod_level: _Container | None
    """Pod-level resources, if the spec has them."""

    overhead: Amounts

    def every_container(self) -> Iterable[_Container]:
        yield from self.init_containers
        yield from self.containers

    def all_parts(self) -> Iterable[_Container]:
        """Yield all containers, and the pod-level resources."""
        yield from self.every_container()
        if self.pod_level is not None:
            yield self.pod_level


def resolve_pod_sets(
    raw: list[Object],
    *,
    limit_ranges: list[Object],
    runtime_class: Callable[[str], Object | None],
    transformations: ResourceTransformations = NO_TRANSFORMATIONS,
) -> list[PodSet]:
    """Return the pod sets of `Workload.spec.podSets`, with the requests that quota counts for one pod.

    Raises `RequestsError` if they break a rule; the workload then waits with that reason.
    """
    problems: list[str] = []
    violations = _Violations()
    ranges = _limits_by_type(problems, limit_ranges)
    pod_sets = []
    for index, pod_set in enumerate(raw):
        requests: Amounts = {}
        where = ANY_NODE
        problems += _count_problems(pod_set, f"spec.podSets[{index}]")
        try:
            spec, path = pod_spec_at(pod_set, f"spec.podSets[{index}]")
            pod = _read_pod(spec, path, runtime_class)
            _apply_defaults(pod, ranges)
            requests = _total(pod, attrgetter("requests"))
            problems += _invalid_requests(pod)
            violations.check(pod, requests, ranges)
            where = placement(spec, path)
        except FieldError as error:
            problems.append(str(error))
        requests = transformations.apply(requests)
        problems += _too_large(pod_set, requests, f"spec.podSets[{index}]")
        pod_sets.append(_pod_set(pod_set, where, requests))
    problems += violations.messages()
    pod_sets, too_large = bounded(pod_sets)
    problems += too_large
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


def _limits_by_type(problems: list[str], limit_ranges: list[Object]) -> dict[str, _Limits]:
    ranges: dict[str, _Limits] = {}
    for limit_range in limit_ranges:
        for item in (limit_range.get("spec") or {}).get("limits") or []:
            try:
                ranges.setdefault(str(item.get("type")), _Limits()).add(item)
            except FieldError as error:
                problems.append(f"LimitRange {limit_range['metadata']['name']}{error}")
    return ranges


def _read_pod(spec: Object, path: str, runtime_class: Callable[[str], Object | None]) -> _Pod:
    resources = spec.get("resources")
    return _Pod(
        path=path,
        containers=_containers(spec.get("containers"), f"{path}.containers"),
        init_containers=_containers(spec.get("initContainers"), f"{path}.initContainers"),
        pod_level=_container({"resources": resources}, path) if resources else None,
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
        sidecar=raw.get("restartPolicy") == SIDECAR,
    )


def _overhead(spec: Object, path: str, runtime_class: Callable[[str], Object | None]) -> Amounts:
    """Return the pod's own overhead, else that of its RuntimeClass; none where that does not exist."""
    name = spec.get("runtimeClassName")
    if not isinstance(name, str | None):
        what = f"must be a string, got {type(name).__name__}"
        raise FieldError(f"{path}.runtimeClassName", what)
    found = runtime_class(name) if name else None
    if spec.get("overhead"):
        return _amounts(spec["overhead"], f"{path}.overhead")
    fixed = ((found or {}).get("overhead") or {}).get("podFixed")
    return _amounts(fixed, f"RuntimeClass {name}.overhead.podFixed")


def _apply_defaults(pod: _Pod, ranges: dict[str, _Limits]) -> None:
    """Fill in the defaults of LimitRanges, then limits for missing requests."""
    by_type = [("Container", container) for container in pod.every_container()]
    if pod.pod_level is not None:
        by_type.append(("Pod", pod.pod_level))
    for type_, container in by_type:
        if type_ in ranges:
            container.limits = {**ranges[type_].default, **container.limits}
            container.requests = {**ranges[type_].default_request, **container.requests}
        container.requests = {**container.limits, **container.requests}


def _total(pod: _Pod, part: Callable[[_Container], Amounts]) -> Amounts:
    """Return what the pod needs in all, of its requests or of its limits."""
    return total_of(
        [part(container) for container in pod.containers],
        [Start(part(container), container.sidecar) for container in pod.init_containers],
        None if pod.pod_level is None else part(pod.pod_level),
        pod.overhead,
    )


def _count_problems(pod_set: Object, path: str) -> list[str]:
    """Return what is wrong with `count` and `minCount`."""
    count, least = pod_set.get("count", 1), pod_set.get("minCount")
    if count < 0:
        return [f"{path}.count: Invalid value: {count}: must be greater than or equal to 0"]
    if least is not None and not 0 < least <= count:
        rule = "minCount should be positive and less or equal to count"
        return [f"{path}.minCount: Invalid value: {least}: {rule}"]
    return []


def _too_large(pod_set: Object, requests: Amounts, path: str) -> list[str]:
    """Return what is beyond the largest quantity, for one pod or for all pods of the set."""
    count = int(pod_set.get("count", 1))
    if count > INT32_MAX:
        return [f"{path}.count: Invalid value: {count}: must be less than or equal to {INT32_MAX}"]
    return [
        f"{path}: requests[{resource}]: Invalid value: {format_quantity(value)} for each of {count} "
        f"pods: must be less than or equal to {format_quantity(QUANTITY_MAX)} in all"
        for resource, value in requests.items()
        if value * max(1, count) > QUANTITY_MAX
    ]


def _invalid_requests(pod: _Pod) -> list[str]:
    """Return requests for `pods`, which Kueue adds itself, and negative ones."""
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
class _Violations:
    """Violated limits and LimitRanges, in Kueue's words."""

    limits: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)

    def check(self, pod: _Pod, total: Amounts, ranges: dict[str, _Limits]) -> None:
        """Check one pod set; `total` are the requests of one pod."""
        for part in pod.all_parts():
            path = f"{part.path}.resources" if part is pod.pod_level else part.path
            self.limits += _messages(path, _above(part.requests, part.limits), ABOVE_LIMITS)
        if (limits := ranges.get("Container")) is not None:
            for container in pod.every_container():
                requested = {**container.limits, **container.requests}
                most, least = dict(requested), dict(requested)
                for resource, value in container.limits.items():
                    most[resource] = max(most[resource], value)
                    least[resource] = min(least[resource], value)
                self._check_bounds(limits, container.path, most, least)
                self._check_ratio(limits, container.path, container.requests, container.limits)
        if (limits := ranges.get("Pod")) is not None:
            self._check_bounds(limits, pod.path, total, total)
            self._check_ratio(limits, pod.path, total, _total(pod, attrgetter("limits")))

    def _check_bounds(self, limits: _Limits, path: str, most: Amounts, least: Amounts) -> None:
        self.ranges += _messages(path, _above(most, limits.most), ABOVE_MAX)
        self.ranges += _messages(path, _above(limits.least, least), BELOW_MIN)

    def _check_ratio(self, bounds: _Limits, path: str, requests: Amounts, limits: Amounts) -> None:
        """A resource without request or without limit violates the ratio too."""
        violating = [
            resource
            for resource, ratio in sorted(bounds.ratio.items())
            if not 0 < limits.get(resource, 0) * NANO <= requests.get(resource, 0) * ratio
        ]
        self.ranges += _messages(path, violating, ABOVE_RATIO)

    def messages(self) -> list[str]:
        """Return violated limits; violated LimitRanges only if all limits hold."""
        if self.limits:
            return [f"resources validation failed: {_aggregate(self.limits)}"]
        if self.ranges:
            return [f"resources didn't satisfy LimitRange constraints: {_aggregate(self.ranges)}"]
        return []


def _above(amounts: Amounts, bounds: Amounts) -> list[str]:
    """Return the resources in both whose amount, as quota counts it, is above the bound."""
    return sorted(
        resource
        for resource, value in amounts.items()
        if resource in bounds and _rounded(resource, value) > _rounded(resource, bounds[resource])
    )


def _rounded(resource: str, value: int) -> int:
    """Round up to the unit of quota, because Kueue compares rounded amounts."""
    return amount(resource, format_quantity(value)) if value >= 0 else value


def _messages(path: str, resources: list[str], rule: str) -> list[str]:
    if not resources:
        return []
    return [f"{path}: Invalid value: {orjson.dumps(resources).decode()}: {rule}"]


def _aggregate(problems: list[str]) -> str:
    different = list(dict.fromkeys(problems))
    return different[0] if len(different) == 1 else f"[{', '.join(different)}]"


def _pod_set(raw: Object, where: Placement, requests: Amounts) -> PodSet:
    return PodSet(
        name=str(raw.get("name", "main")),
        count=min(max(0, int(raw.get("count", 1))), INT32_MAX),
        min_count=raw.get("minCount"),
        requests={
            resource: format_quantity(
                min(max(0, value), QUANTITY_MAX), binary=resource.startswith(BINARY_RESOURCES)
            )
            for resource, value in requests.items()
        },
        node_selector=where.node_selector,
        tolerations=where.tolerations,
        node_affinity=where.node_affinity,
    )
