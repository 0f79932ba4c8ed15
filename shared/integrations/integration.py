"""One kind that can wait, as its document says. All methods are pure: an object in, facts or patches out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.messages.workloads import Finish
from shared.integrations.compiled import Compiled, Operation, compiled
from shared.integrations.document import Lines, read
from shared.integrations.errors import ObjectError
from shared.integrations.expressions import Failure, value_of
from shared.integrations.pointers import found, pointer, tokens, without, written
from shared.integrations.views import Asked, View, Views, moment

_SUCCESS: Final = ("Complete", "Completed", "Succeeded")
_FAILURE: Final = ("Failed",)
_DECISIVE: Final = (*_SUCCESS, *_FAILURE)

_HOLD: Final = (Operation(op="add", path="/spec/suspend", value=True, value_from=None, when=None),)
_RELEASE: Final = (
    Operation(op="test", path="/spec/suspend", value=True, value_from=None, when=None),
    Operation(op="replace", path="/spec/suspend", value=False, value_from=None, when=None),
)
_LIMITS: Final = frozenset({"activeDeadlineSeconds", "timeouts", "ttlSecondsAfterFinished"})
"""Fields of a spec that limit how long a job runs or stays, whatever its kind."""

_CARRY: Final = (
    Operation(op="remove", path="/spec/managedBy", value=None, value_from=None, when=None),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetInfo:
    """What an admission gives to one pod set of a job."""

    name: str
    count: int
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...]


class Integration:
    """How one kind is read, held, released, stopped and counted."""

    def __init__(self, document: Compiled) -> None:
        self.document = document.document
        of = self.document.spec.kind
        self.kind = Kind(group=of.group, version=of.version, plural=of.plural, kind=of.kind)
        self._said = document.single
        self._patches = document.patches
        self._views = Views(document)
        stop = self.document.spec.stop
        self._stop = "Hold" if stop is None else stop.how
        self.forget = () if stop is None else tuple(stop.forget or ())
        """Prefixes of labels and annotations that a copy does not take over from one that was ended."""

        webhook = self.document.spec.webhook
        self.classify = webhook is not None and webhook.classify
        """The classifier's rules hold for it."""

        self.default_queue = "" if webhook is None else webhook.default_queue or ""
        self.remember_pause = webhook is not None and webhook.remember_pause
        self.own_controller = None if webhook is None else webhook.own_controller
        """What `spec.managedBy` says of it; None: that field is the user's alone."""

        trace = self.document.spec.trace
        self.trace_annotation = "" if trace is None else trace.annotation or ""
        self.trace_name_label = "" if trace is None else trace.name_label or ""

    @classmethod
    def load(cls, obj: Object, lines: Lines | None = None) -> "Integration":
        """Check a document. Raises `IntegrationError` with all that is wrong, by field and line."""
        lines = lines or Lines()
        return cls(compiled(read(obj, lines), lines))

    @property
    def name(self) -> str:
        """Of the document."""
        return str(self.document.metadata["name"])

    def __repr__(self) -> str:
        return f"Integration({self.name!r})"

    def problems(self, obj: Object) -> tuple[str, ...]:
        """What fails on this object: field of the document, and reason."""
        return tuple(f"Integration {self.name}: {p}" for p in self._views.of(obj).problems)

    def matches(self, obj: Object) -> bool:
        """Whether an object of the kind is one that waits.

        One that cannot be judged is: it waits, with the reason.
        """
        return "match" not in self._said or bool(self._views.of(obj).said.get("match", True))

    def held(self, obj: Object) -> bool:
        """It does not run because it was told to wait; also where that cannot be found out."""
        if "held" not in self._said:
            return bool(found(obj, ("spec", "suspend")))
        return bool(self._views.of(obj).said.get("held", True))

    def active(self, obj: Object) -> bool:
        """Something of it runs or terminates: its quota is in use, whatever anybody decided."""
        if "active" in self._said:
            found_out = self._views.of(obj).said.get("active")
            return not self.held(obj) if found_out is None else bool(found_out)
        return bool(obj.get("status")) and not self.held(obj) and self._ended(obj) is None

    def ready(self, obj: Object) -> bool | None:
        """All its pods are ready or succeeded; None where the kind cannot tell."""
        if "ready" not in self._said:
            return None
        value: bool | None = self._views.of(obj).said.get("ready")
        return value

    def finish(self, obj: Object) -> Finish | None:
        """How it ended; None if it has not."""
        success = self._ended(obj)
        if success is None:
            return None
        message = self._views.ending("message", obj)
        at = self._views.ending("at", obj)
        decisive = _decisive(obj) or {}
        if message is None:
            message = decisive.get("message") or decisive.get("reason") or ""
        if at is None:
            at = decisive.get("lastTransitionTime")
        return Finish(success=success, message=str(message), at=moment(at))

    def _ended(self, obj: Object) -> bool | None:
        view: View | None = None
        for name, of, types in (("success", True, _SUCCESS), ("failure", False, _FAILURE)):
            if name in self._said:
                view = view or self._views.of(obj)
                ended = bool(view.said.get(name))
            else:
                ended = any(c.get("status") == "True" for c in _conditions(obj, types))
            if ended:
                return of
        return None

    def pod_sets(self, obj: Object) -> list[Object]:
        """In the form of `Workload.spec.podSets`. Raises `ObjectError` with everything that fails."""
        view = self._views.of(obj)
        if view.problems:
            raise ObjectError("; ".join(self.problems(obj)))
        return [_pod_set(obj, asked) for asked in view.pod_sets]

    def reclaimable(self, obj: Object) -> dict[str, int]:
        """Pod set to the number of its pods that finished and will not run again."""
        return {a.name: a.reclaimable for a in self._views.of(obj).pod_sets if a.reclaimable > 0}

    def hold(self, obj: Object) -> list[Object]:
        """JSON patch that makes a not yet started object wait."""
        return [_uid_test(obj), *self._patch("hold", _HOLD, obj)]

    def release(self, obj: Object, infos: Sequence[PodSetInfo]) -> list[Object]:
        """JSON patch that starts it.

        Its `test` operations fail if it is not the held object of that uid. Raises `ObjectError`.
        """
        patch = self._patch("release", _RELEASE, obj)
        by_name = {info.name: info for info in infos}
        return [
            _uid_test(obj),
            *(operation for operation in patch if operation["op"] == "test"),
            *(
                operation
                for asked in self._views.of(obj).pod_sets
                if asked.name in by_name
                for operation in _given(obj, asked, by_name[asked.name])
            ),
            *(operation for operation in patch if operation["op"] != "test"),
        ]

    def restore(self, obj: Object, pod_sets: Sequence[Object]) -> list[Object] | None:
        """JSON patch that undoes on a held object what `release` gave it, to what its pod sets were.

        None: nothing is to be undone.
        """
        before = {p.get("name"): p for p in pod_sets}
        patch = [
            operation
            for asked in self._views.of(obj).pod_sets
            if asked.name in before
            for operation in _taken_back(obj, asked, before[asked.name])
        ]
        if not patch:
            return None
        tests = (o for o in self._patch("release", _RELEASE, obj) if o["op"] == "test")
        return [_uid_test(obj), *tests, *patch]

    def stop(self, obj: Object) -> list[Object] | None:
        """JSON patch that takes a running one off the cluster so that it can be started again.

        None: the kind cannot be stopped and resumed.
        """
        match self._stop:
            case "Never":
                return None
            case "Patch":
                return [_uid_test(obj), *self._patch("stop", (), obj)]
            case _:
                return self.hold(obj)

    def end(self, obj: Object) -> list[Object] | None:
        """JSON patch that ends it for good, so that a copy can wait in its place.

        None: that cannot be done with this kind.
        """
        if "end" not in self._patches:
            return None
        return [_uid_test(obj), *self._patch("end", (), obj)]

    def cancel(self, obj: Object) -> list[Object] | None:
        """JSON patch that ends at once one that runs without admission; None: that cannot be done."""
        if "cancel" not in self._patches:
            return self.end(obj)
        return [_uid_test(obj), *self._patch("cancel", (), obj)]

    def carry(self, obj: Object) -> Object:
        """The part of its spec that a copy of it on another cluster has too."""
        return _applied(obj.get("spec") or {}, self._patch("carry", _CARRY, obj))

    def carry_held(self, obj: Object) -> Object:
        """The spec that such a copy is created with: it waits, also where its user wished otherwise here."""
        carried = self.carry(obj)
        return carried if self.held(obj) else _applied(carried, self._patch("hold", _HOLD, obj))

    def ending_changes(self, obj: Object, changes: Object) -> Object:
        """The part of `changes` to the fields of its spec that stops it or makes it end sooner.

        Whoever asks for more wants a held object to start, or another one to run.
        """
        return {name: value for name, value in changes.items() if self._only_ends(obj, name, value)}

    def _only_ends(self, obj: Object, name: str, value: Any) -> bool:
        if name in _LIMITS:
            return True
        plans = (asked.plan.count_field for asked in self._views.of(obj).pod_sets)
        if ("spec", name) in plans:
            before = found(obj, ("spec", name))
            return type(value) is int and type(before) is int and value <= before
        path = pointer(("spec", name))
        wanted = [
            operation
            for which, otherwise in (("hold", _HOLD), ("stop", ()), ("end", ()))
            for operation in self._patch(which, otherwise, obj)
            if operation["path"] == path
        ]
        if any(operation.get("value") == value for operation in wanted):
            return True
        releases = self._patch("release", _RELEASE, obj)
        removes = any(o["op"] == "remove" and o["path"] == path for o in releases)
        return bool(wanted) and removes and bool(value)

    def _patch(self, name: str, otherwise: tuple[Operation, ...], obj: Object) -> list[Object]:
        operations = self._patches.get(name, otherwise)
        return [written_out for o in operations for written_out in self._operation(o, obj)]

    def _operation(self, operation: Operation, obj: Object) -> Iterator[Object]:
        if operation.when is not None and self._value(operation.when, obj) is not True:
            return
        said: Object = {"op": operation.op, "path": operation.path}
        if operation.value_from is not None:
            said["value"] = self._value(operation.value_from, obj)
        elif operation.op != "remove":
            said["value"] = operation.value
        yield said

    def _value(self, slot: Any, obj: Object) -> Any:
        result = value_of(slot.expression, obj)
        if isinstance(result, Failure):
            raise ObjectError(f"Integration {self.name}: {slot.field}: {result.reason}")
        return result


def _applied(spec: Object, operations: Sequence[Object]) -> Object:
    """A spec after these operations on the object that it is of."""
    whole: Object = {"spec": spec}
    for operation in operations:
        path = tokens(operation["path"])
        if operation["op"] == "remove":
            whole = without(whole, path)
        elif operation["op"] == "add" or found(whole, path) is not None:
            whole = written(whole, path, operation["value"])
    changed: Object = whole["spec"]
    return changed


def _uid_test(obj: Object) -> Object:
    return {"op": "test", "path": "/metadata/uid", "value": obj["metadata"]["uid"]}


def _conditions(obj: Object, types: Sequence[str]) -> list[Object]:
    """The conditions of these types, in the order of `types`."""
    status = obj.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    if not conditions or not isinstance(conditions, list):
        return []
    by_type = {c.get("type"): c for c in conditions if isinstance(c, dict)}
    return [by_type[type_] for type_ in types if type_ in by_type]


def _decisive(obj: Object) -> Object | None:
    """The condition that says that it has ended: one that is True, else one that is False."""
    decisive = _conditions(obj, _DECISIVE)
    for status in ("True", "False"):
        for condition in decisive:
            if condition.get("status") == status:
                return condition
    return None


def _pod_set(obj: Object, asked: Asked) -> Object:
    plan = asked.plan
    if plan.template is not None:
        path = asked.path_of(plan.template, in_item=plan.in_item)
        template = found(obj, path) or {"spec": {"containers": []}}
    else:
        container = {"name": "run", "image": "none", "resources": {"requests": asked.requests}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    pod_set: Object = {"name": asked.name, "count": asked.pods, "template": template}
    if asked.min_count is not None:
        pod_set["minCount"] = asked.min_count
    return pod_set


def _given(obj: Object, asked: Asked, info: PodSetInfo) -> Iterator[Object]:
    """The flavor's labels and tolerations go into the pod template, fewer pods into their field."""
    plan = asked.plan
    if plan.template is not None:
        path = (*asked.path_of(plan.template, in_item=plan.in_item), "spec")
        pod = _mapping(obj, path)
        if info.node_selector:
            selector = {**(pod.get("nodeSelector") or {}), **info.node_selector}
            yield {"op": "add", "path": pointer((*path, "nodeSelector")), "value": selector}
        if info.tolerations:
            tolerations = [*(pod.get("tolerations") or []), *map(dict, info.tolerations)]
            yield {"op": "add", "path": pointer((*path, "tolerations")), "value": tolerations}
    if plan.count_field is not None and info.count < asked.pods:
        path = asked.path_of(plan.count_field, in_item=plan.count_in_item)
        yield {"op": "add", "path": pointer(path), "value": info.count}


def _mapping(obj: Object, path: Sequence[str]) -> Object:
    """The map there; an empty one where there is none, whatever there is."""
    there = found(obj, path)
    return there if isinstance(there, dict) else {}


def _taken_back(obj: Object, asked: Asked, before: Object) -> Iterator[Object]:
    plan = asked.plan
    if plan.template is not None:
        path = (*asked.path_of(plan.template, in_item=plan.in_item), "spec")
        now, was = _mapping(obj, path), _mapping(before, ("template", "spec"))
        for name in ("nodeSelector", "tolerations"):
            is_, old = now.get(name) or None, was.get(name) or None
            if old is not None and is_ != old:
                yield {"op": "add", "path": pointer((*path, name)), "value": old}
            elif old is None and is_ is not None:
                yield {"op": "remove", "path": pointer((*path, name))}
    count = before.get("count")
    if plan.count_field is not None and isinstance(count, int) and asked.pods < count:
        path = asked.path_of(plan.count_field, in_item=plan.count_in_item)
        yield {"op": "add", "path": pointer(path), "value": count}
