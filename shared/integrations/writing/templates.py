"""Pod sets of an object: their templates, what an admission adds to them, and what it takes back.

A pod set's labels, annotations, node selector and tolerations are in its pod template, or, where the
document says `placement`, together in one map.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from shared.contracts.kube.kinds import Object
from shared.contracts.kube.names import CONTROLLER_UID, JOB_NAME
from shared.integrations.errors import ObjectError
from shared.integrations.expressions import Failure, value_of
from shared.integrations.pointers import found, pointer, written
from shared.integrations.views import PodSetRequest

_SET_BY_SERVER: Final = frozenset(
    {
        CONTROLLER_UID,
        JOB_NAME,
        "controller-uid",
        "job-name",
    }
)
"""Labels of the pod template of a Job that never change."""

_NAMES_JOB: Final = JOB_NAME
"""The one of them that Kueue leaves in the pod set."""

_ON_ITS_WAY: Final = frozenset({"nodeName", "schedulingGates"})
"""Fields of a pod that say how far it is."""

_ADDED: Final = "added-by-the-controller"
"""Name of the container that stands for those that a controller adds to its pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetInfo:
    """What an admission assigns to one pod set of a job."""

    name: str
    count: int
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placement:
    """Where an object has what an admission changes."""

    labels: tuple[str, ...]
    """The map with `labels` and `annotations`."""

    nodes: tuple[str, ...]
    """The map with `nodeSelector` and `tolerations`."""


def _places(asked: PodSetRequest) -> _Placement | None:
    """None for a kind without pods whose nodes could be chosen."""
    plan = asked.plan
    if plan.placement is not None:
        there = asked.path_of(plan.placement, in_item=plan.placement_in_item)
        return _Placement(labels=there, nodes=there)
    if plan.template is None:
        return None
    template = asked.path_of(plan.template, in_item=plan.in_item)
    return _Placement(labels=(*template, "metadata"), nodes=(*template, "spec"))


def pod_set_of(obj: Object, asked: PodSetRequest) -> Object:
    """The pod set in the form of `Workload.spec.podSets`. Raises `ObjectError`."""
    pod_set: Object = {
        "name": asked.name,
        "count": asked.pods,
        "template": _with_added(_without_own(obj, _template(obj, asked)), asked.added),
    }
    if asked.min_count is not None:
        pod_set["minCount"] = asked.min_count
    return pod_set


def _template(obj: Object, asked: PodSetRequest) -> Object:
    plan = asked.plan
    if asked.inside is not None:
        return asked.inside.template
    if plan.template is not None:
        if not plan.template and not plan.in_item:
            return _pod(obj)
        there = found(obj, asked.path_of(plan.template, in_item=plan.in_item))
        if there:
            return there
    if plan.template_from is not None:
        return _made(obj, asked)
    if plan.template is not None:
        return {"spec": {"containers": []}}
    container = {"name": "run", "image": "none", "resources": {"requests": asked.requests}}
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}


def _without_own(obj: Object, template: Object) -> Object:
    """The template without the labels that the API server made of the object's own uid and name."""
    metadata = _mapping(obj, ("metadata",))
    made = (metadata.get("uid"), metadata.get("name"))
    labels = _mapping(template, ("metadata", "labels"))
    own = {key for key in _SET_BY_SERVER & labels.keys() if labels[key] in made} - {_NAMES_JOB}
    if not own:
        return template
    kept = {key: value for key, value in labels.items() if key not in own}
    return {**template, "metadata": {**template["metadata"], "labels": kept}}


def _pod(obj: Object) -> Object:
    """The template of an object that is a pod: without what others write into it on its way to a node."""
    metadata, spec = _mapping(obj, ("metadata",)), _mapping(obj, ("spec",))
    kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    return {
        "metadata": kept,
        "spec": {key: value for key, value in spec.items() if key not in _ON_ITS_WAY},
    }


def _made(obj: Object, asked: PodSetRequest) -> Object:
    """The template that an expression makes. Raises `ObjectError`."""
    slot = asked.plan.template_from
    assert slot is not None
    made = value_of(slot.expression, obj)
    if isinstance(made, Failure):
        raise ObjectError(f"{slot.field}: {made.reason}")
    if not isinstance(made, dict):
        raise ObjectError(f"{slot.field}: must return a map, but returned {type(made).__name__}")
    return made


def _with_added(template: Object, added: Mapping[str, str]) -> Object:
    """The template, with one more container for what the kind's controller adds to each pod."""
    more = {resource: amount for resource, amount in added.items() if amount != "0"}
    spec = template.get("spec") if isinstance(template, dict) else None
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not more or not isinstance(spec, dict) or not isinstance(containers, list):
        return template
    container = {"name": _ADDED, "resources": {"requests": more}}
    return {**template, "spec": {**spec, "containers": [*containers, container]}}


def given(obj: Object, asked: PodSetRequest, info: PodSetInfo) -> Iterator[Object]:
    """What an admission adds goes to the pods' place, a smaller pod count into its field."""
    plan, places = asked.plan, _places(asked)
    adds = info.labels or info.annotations or info.node_selector or info.tolerations
    if places is not None and adds:
        if plan.template is not None and plan.placement is None and plan.template_from is not None:
            path = asked.path_of(plan.template, in_item=plan.in_item)
            if not found(obj, path):
                made = _made(obj, asked)
                yield {"op": "add", "path": pointer(path), "value": made}
                obj = written(obj, path, made)
        yield from _labelled(obj, places.labels, info)
        pod = _mapping(obj, places.nodes)
        if info.node_selector:
            selector = {**(pod.get("nodeSelector") or {}), **info.node_selector}
            yield {"op": "add", "path": pointer((*places.nodes, "nodeSelector")), "value": selector}
        if info.tolerations:
            tolerations = [*(pod.get("tolerations") or []), *map(dict, info.tolerations)]
            yield {
                "op": "add",
                "path": pointer((*places.nodes, "tolerations")),
                "value": tolerations,
            }
    if asked.min_count is not None and info.count < asked.pods:
        yield from _counted(obj, asked, info.count)


def placements(
    obj: Object, pod_sets: Sequence[PodSetRequest], infos: Mapping[str, PodSetInfo]
) -> Iterator[Object]:
    """What an admission gives to pods of wrapped objects: a list for each, also if it chooses nothing."""
    for path, names in _lists(pod_sets).items():
        chosen = [_placement(infos.get(name)) for name in names]
        if chosen != found(obj, path):
            yield {"op": "add", "path": pointer(path), "value": chosen}


def placements_taken_back(obj: Object, pod_sets: Sequence[PodSetRequest]) -> Iterator[Object]:
    """Take such lists away."""
    for path in _lists(pod_sets):
        if found(obj, path) is not None:
            yield {"op": "remove", "path": pointer(path)}


def _lists(pod_sets: Sequence[PodSetRequest]) -> dict[tuple[str, ...], list[str]]:
    """Path of each list of placements to the names of the pod sets that it is about."""
    lists: dict[tuple[str, ...], list[str]] = {}
    for asked in pod_sets:
        wrapped = asked.plan.wrapped
        if wrapped is None or asked.inside is None or asked.inside.place is None:
            continue
        if wrapped.placements is not None:
            path = asked.path_of(wrapped.placements, in_item=True)
            lists.setdefault(path, []).append(asked.name)
    return lists


def _placement(info: PodSetInfo | None) -> Object:
    if info is None:
        return {}
    chosen = {
        "labels": dict(info.labels),
        "annotations": dict(info.annotations),
        "nodeSelector": dict(info.node_selector),
        "tolerations": list(map(dict, info.tolerations)),
    }
    return {name: value for name, value in chosen.items() if value}


def _counted(obj: Object, asked: PodSetRequest, count: int) -> Iterator[Object]:
    """The number of pods, and what is to be equal to it."""
    plan = asked.plan
    if plan.count_field is None:
        return
    path = asked.path_of(plan.count_field, in_item=plan.count_in_item)
    yield {"op": "add", "path": pointer(path), "value": count}
    if plan.equal_count is None:
        return
    when = plan.equal_count_when
    if when is None or value_of(when.expression, obj) is True:
        path = asked.path_of(plan.equal_count, in_item=plan.equal_count_in_item)
        yield {"op": "add", "path": pointer(path), "value": count}


def _labelled(obj: Object, path: Sequence[str], info: PodSetInfo) -> Iterator[Object]:
    """The added labels and annotations."""
    there = _mapping(obj, path)
    added = {"labels": info.labels, "annotations": info.annotations}
    wanted = {name: {**(there.get(name) or {}), **more} for name, more in added.items() if more}
    if not wanted:
        return
    if found(obj, path) is None:
        yield {"op": "add", "path": pointer(path), "value": wanted}
        return
    for name, value in wanted.items():
        yield {"op": "add", "path": pointer((*path, name)), "value": value}


def _mapping(obj: Object, path: Sequence[str]) -> Object:
    """The map at the path; an empty one if there is none or if it is no map."""
    there = found(obj, path)
    return there if isinstance(there, dict) else {}


def taken_back(obj: Object, asked: PodSetRequest, before: Object) -> Iterator[Object]:
    """Yield the JSON patch operations that restore the pods of an object to the pod set `before`."""
    places = _places(asked)
    if places is not None:
        yield from _unlabelled(obj, places.labels, before)
        now, was = _mapping(obj, places.nodes), _mapping(before, ("template", "spec"))
        for name in ("nodeSelector", "tolerations"):
            is_, old = now.get(name) or None, was.get(name) or None
            if old is not None and is_ != old:
                yield {"op": "add", "path": pointer((*places.nodes, name)), "value": old}
            elif old is None and is_ is not None:
                yield {"op": "remove", "path": pointer((*places.nodes, name))}
    count = before.get("count")
    if asked.min_count is not None and isinstance(count, int) and asked.pods < count:
        yield from _counted(obj, asked, count)


def _unlabelled(obj: Object, path: Sequence[str], before: Object) -> Iterator[Object]:
    """Yield operations that restore labels and annotations, except those that the API server sets."""
    now, was = _mapping(obj, path), _mapping(before, ("template", "metadata"))
    for name in ("labels", "annotations"):
        is_, old = now.get(name) or {}, was.get(name) or {}
        kept = {key: value for key, value in is_.items() if key in _SET_BY_SERVER}
        if (wanted := {**old, **kept}) == is_:
            continue
        if wanted:
            yield {"op": "add", "path": pointer((*path, name)), "value": wanted}
        else:
            yield {"op": "remove", "path": pointer((*path, name))}
