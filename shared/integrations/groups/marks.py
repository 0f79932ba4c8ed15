"""What the template of an object gets so that its pods are groups, and what stays while it has pods. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from shared.contracts.kube.bodies import map_at
from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import DNS_LABEL, DNS_LABEL_MAX, QUEUE, workload_name
from shared.contracts.kueue.integrations import GroupSpec
from shared.integrations.compiled import PodGroupsPlan, Slot
from shared.integrations.errors import ObjectError
from shared.integrations.expressions import Failure, value_of
from shared.integrations.integration import Integration
from shared.integrations.pointers import found
from shared.integrations.registry import queue_of
from shared.integrations.shape import asked_by, role_hash

_INDEX_MAX: Final = 6
"""Room for what a group is told apart by, with its hyphen."""

_FIRST: Final = "scale it to 0 first, and wait until its pods are gone"

_ABSENT: Final = re.compile(r"\.orValue\([^()]*\)|\?")
"""What an expression that reads one field says of its absence."""

Marks = tuple[dict[str, str], dict[str, str]]
"""Labels and annotations."""


def templates_of(obj: Object, integration: Integration) -> list[tuple[str, ...]]:
    """Return the paths of the pod templates that an object has."""
    paths = [integration.propagate]
    plan = integration.pod_groups
    if plan is not None and plan.leader is not None and found(obj, plan.leader) is not None:
        paths.append(plan.leader)
    return paths


def annotations_for(
    path: tuple[str, ...], integration: Integration, old: Object | None
) -> Mapping[str, str]:
    """Return the annotations for the template at `path`; `old`: the object before a change."""
    wanted = integration.document.spec.annotate or {}
    has_queue = found(old, (*path, "metadata", "labels", QUEUE)) is not None
    has_any = any(found(old, (*path, "metadata", "annotations", key)) for key in wanted)
    return {} if has_queue and not has_any else wanted


def group_marks(obj: Object, integration: Integration, spec: GroupSpec | None) -> Marks:
    """Return what makes groups of an object's pods; `spec` is that of Pods. Raises `ObjectError`."""
    plan = integration.pod_groups
    if plan is None or spec is None:
        return {}, {}
    total = _value(plan.total, obj)
    if total == 0:
        return {}, {}
    name = map_at(obj, "metadata").get("name")
    if not name:
        raise ObjectError(
            "metadata.generateName: its pods are a group by its name: write metadata.name"
        )
    annotations = {spec.total: str(total)}
    if spec.serving is not None:
        annotations[spec.serving] = "true"
    if spec.early is not None and plan.early is not None:
        annotations[spec.early] = "true" if _value(plan.early, obj) else "false"
    if plan.each and spec.by is not None:
        annotations[spec.by] = plan.each
    return {spec.label: _name(integration, name)}, annotations


def _name(integration: Integration, name: str) -> str:
    kind = integration.kind
    whole = workload_name(kind=kind.kind, group=kind.group, name=name, uid="")
    start, _, digest = whole.rpartition("-")
    room = DNS_LABEL_MAX - _INDEX_MAX - len(digest) - 1
    return f"{start[:room].rstrip('-.')}-{digest}"


def own_group(labels: Mapping[str, str], spec: GroupSpec, by: str) -> str:
    """Return the name of a pod's group, which goes on with its label `by`. Raises `ObjectError`."""
    value = labels.get(by, "")
    name = f"{labels.get(spec.label, '')}-{value}"
    if not DNS_LABEL.fullmatch(value) or len(name) > DNS_LABEL_MAX:
        raise ObjectError(
            f"metadata.labels[{by}]: {value!r}: its group is told apart by that label, so it must be a short "
            "DNS label. A webhook that writes it has to come before this one"
        )
    return name


def group_changes(obj: Object, old: Object, integration: Integration) -> Iterator[str]:
    """Yield what a change may not change, for an object whose pods are groups. Raises `ObjectError`."""
    plan = integration.pod_groups
    if plan is None or not (queue_of(obj) or queue_of(old)):
        return
    has_pods = _value(plan.has_pods, old)
    before, after = queue_of(old), queue_of(obj)
    if before != after and (has_pods or not after):
        yield f"metadata.labels[{QUEUE}]: {after!r}: must stay {before!r}: {_FIRST}"
    if has_pods:
        yield from _of_pods(obj, old, integration, plan)


def _of_pods(
    obj: Object, old: Object, integration: Integration, plan: PodGroupsPlan
) -> Iterator[str]:
    total, before = _value(plan.total, obj), _value(plan.total, old)
    if total not in {0, before}:
        field = _ABSENT.sub("", plan.total.expression.text)
        yield f"{field}: {total}: must stay {before}: {_FIRST}"
    paths = templates_of(old, integration)
    if paths != templates_of(obj, integration):
        yield f"{'.'.join(plan.leader or ())}: may not come or go while it has pods: {_FIRST}"
        return
    for path in paths:
        now, was = (map_at(found(one, path), "spec") for one in (obj, old))
        if _shape(now) != _shape(was):
            yield (
                f"{'.'.join(path)}.spec: what its pods ask for, and where they may run, must stay as it is: "
                f"{_FIRST}"
            )


def _shape(spec: Object) -> tuple[str, str]:
    return role_hash(spec), asked_by(spec)


def _value(slot: Slot, obj: Object) -> Any:
    result = value_of(slot.expression, obj)
    if isinstance(result, Failure):
        raise ObjectError(f"{slot.field}: {result.reason}")
    return result
