"""One kind of job that can wait, as its document describes it.

All methods are pure: they take an object and return facts or patches.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from shared.contracts.kube.kinds import POD, TASK_RUN, Kind, Object
from shared.contracts.kueue.integrations import Integration as Document
from shared.contracts.messages.spokes import MANAGER
from shared.contracts.messages.workloads import Finish, Members
from shared.integrations.compiled import Compiled, Operation, PodGroupsPlan, Slot, compiled
from shared.integrations.document import Lines, read
from shared.integrations.errors import ObjectError
from shared.integrations.expressions import Failure, value_of
from shared.integrations.pointers import found, pointer, tokens, with_missing_maps, without, written
from shared.integrations.schema import check_schema
from shared.integrations.shape import role_hash
from shared.integrations.templates import PodSetInfo, given, pod_set_of, taken_back
from shared.integrations.views import View, Views, moment, shown

_SUCCESS: Final = ("Complete", "Completed", "Succeeded")
_FAILURE: Final = ("Failed",)
_DECISIVE: Final = (*_SUCCESS, *_FAILURE)

_LIMITS: Final = frozenset({"activeDeadlineSeconds", "timeouts", "ttlSecondsAfterFinished"})
"""Fields of a spec that limit how long a job runs or is kept, for every kind."""

_GATES: Final = "/spec/schedulingGates"
_SUSPEND: Final = "spec.suspend"
_MANAGED_BY: Final = "spec.managedBy"
_PODS: Final = (POD.group, POD.kind)
_NO_JOBS: Final = frozenset((_PODS, (TASK_RUN.group, TASK_RUN.kind)))


def _operation(op: str, path: str, value: Any = None) -> Operation:
    return Operation(op=op, path=path, value=value, value_from=None, when=None)


class Integration:
    """How to read, hold, release, stop and count the objects of one kind."""

    is_group = False
    """True if its objects are groups of the objects of that kind."""

    def __init__(self, document: Document, compile_: Callable[[], Compiled]) -> None:
        """`compile_` is called when the first expression is needed: most processes need few kinds."""
        self.document = document
        self.compile = compile_
        spec = document.spec
        of = spec.kind
        self.kind = Kind(group=of.group, version=of.version, plural=of.plural, kind=of.kind)
        self._suspended = tuple((spec.suspend_field or _SUSPEND).split("."))
        suspend = pointer(self._suspended)
        self._hold = (_operation("add", suspend, True),)
        self._release = (_operation("test", suspend, True), _operation("replace", suspend, False))
        self.gate = spec.gate
        """The scheduling gate that holds its objects; None: a field does."""

        self.group = spec.group
        """By what its objects say that several of them are one workload; None: each is by itself."""

        self.propagates = spec.propagate is not None
        """True if its pods wait instead of its objects."""

        stop = self.document.spec.stop
        self._stop = stop.how if stop is not None else "Hold" if spec.gate is None else "Delete"
        self.forget = () if stop is None else tuple(stop.forget or ())
        """Prefixes of labels and annotations that a copy does not take over from the job that was
        ended."""

        webhook = self.document.spec.webhook
        asked = self.document.spec.pod_sets
        self.asked_by = tuple(
            p.requests_from_annotations for p in asked if p.requests_from_annotations
        )
        """Prefixes of annotations that ask for resources."""

        self.asked_always = frozenset(resource for p in asked for resource in p.requests or ())
        """Resources for which an object asks without annotations."""

        self.classify = webhook is not None and webhook.classify
        """True if the classifier's rules apply to the kind."""

        self.default_queue = "" if webhook is None else webhook.default_queue or ""
        self.remember_pause = webhook is not None and webhook.remember_pause
        self.own_controller = None if webhook is None else webhook.own_controller
        """The value of its `managedByField` that names its own controller. None: only the user sets that
        field."""

        managed_by = None if webhook is None else webhook.managed_by_field
        self.managed_by = tuple((managed_by or _MANAGED_BY).split("."))
        """The path of the field that says who runs an object."""

        self._carry = (_operation("remove", pointer(self.managed_by)),)
        children = [(each.group, each.kind) for each in self.document.spec.children or ()]
        self._children = frozenset(children) - _NO_JOBS
        self.makes_jobs = bool(self._children)  # Which run on its quota.
        self.makes_pods = not children or _PODS in children
        trace = self.document.spec.trace
        self.trace_annotation = "" if trace is None else trace.annotation or ""
        self.trace_name_label = "" if trace is None else trace.name_label or ""

    @classmethod
    def load(cls, obj: Object, lines: Lines | None = None) -> "Integration":
        """Check a document. Raises `IntegrationError` with all problems, each with field and line."""
        lines = lines or Lines()
        document = read(obj, lines)
        result = compiled(document, lines)
        return cls(document, lambda: result)

    @classmethod
    def shipped(cls, obj: Object, lines: Lines) -> "Integration":
        """A document that tests have checked; its expressions are compiled when they are needed."""
        document = read(obj, lines)
        return cls(document, lambda: compiled(document, lines))

    def check_schema(self, definition: Object) -> None:
        """Check each path against the CustomResourceDefinition of the kind. Raises `IntegrationError`."""
        check_schema(self._compiled, definition)

    @cached_property
    def _compiled(self) -> Compiled:
        return self.compile()

    @cached_property
    def _views(self) -> Views:
        return Views(self._compiled)

    @property
    def _expressions(self) -> Mapping[str, Slot]:
        return self._compiled.single

    @property
    def _patches(self) -> Mapping[str, tuple[Operation, ...]]:
        return self._compiled.patches

    @property
    def name(self) -> str:
        """Name of the document."""
        return str(self.document.metadata["name"])

    @property
    def detail(self) -> str:
        """Token by which its objects are told from those of other kinds."""
        return self.kind.detail

    def __repr__(self) -> str:
        return f"Integration({self.name!r})"

    def problems(self, obj: Object) -> tuple[str, ...]:
        """Why expressions fail for this object: field of the document, and reason."""
        return tuple(f"Integration {self.name}: {p}" for p in self._views.of(obj).problems)

    def matches(self, obj: Object) -> bool:
        """Whether the object can wait.

        True if that cannot be decided: the object then waits, and its reason says what failed.
        """
        return "match" not in self._expressions or bool(
            self._views.of(obj).results.get("match", True)
        )

    def makes(self, kind: Kind) -> bool:
        """Whether the controller of this kind makes jobs of that kind, which run on its quota."""
        return (kind.group, kind.kind) in self._children

    @property
    def propagate(self) -> tuple[str, ...]:
        """Path of the pod template to which the labels of the queue go; empty if none does."""
        return self._compiled.propagate or ()

    @property
    def pod_groups(self) -> PodGroupsPlan | None:
        """How its pods are groups; None: each of them is by itself."""
        return self._compiled.pod_groups

    @property
    def can_stop(self) -> bool:
        """Whether a running object can be stopped, so that its quota is free."""
        return self._stop != "Never"

    @property
    def deletes(self) -> bool:
        """Whether stopping an object is to delete it."""
        return self._stop == "Delete"

    @property
    def selector(self) -> str | None:
        """Label selector of the objects that are watched; None: all."""
        return None if self.gate is None else f"{self.gate.label}=true"

    def held(self, obj: Object) -> bool:
        """Whether the object does not run because it is held. True if that cannot be decided."""
        if self.gate is not None:
            return any(gate.get("name") == self.gate.name for gate in _gates(obj))
        if "held" not in self._expressions:
            return bool(found(obj, self._suspended))
        return bool(self._views.of(obj).results.get("held", True))

    def active(self, obj: Object) -> bool:
        """Whether a part of the object runs or terminates.

        Its quota is then in use, whatever was decided.
        """
        if "active" in self._expressions:
            found_out = self._views.of(obj).results.get("active")
            return not self.held(obj) if found_out is None else bool(found_out)
        return bool(obj.get("status")) and not self.held(obj) and self.succeeded(obj) is None

    def ready(self, obj: Object) -> bool | None:
        """Whether all pods are ready or succeeded. None if the kind cannot tell."""
        if "ready" not in self._expressions:
            return None
        value: bool | None = self._views.of(obj).results.get("ready")
        return value

    def finish(self, obj: Object) -> Finish | None:
        """The result of a finished object; None before its end."""
        success = self.succeeded(obj)
        if success is None:
            return None
        message = self._views.seldom("message", obj)
        at = self._views.seldom("at", obj)
        decisive = _decisive(obj) or {}
        if message is None:
            message = decisive.get("message") or decisive.get("reason") or ""
        if at is None:
            at = decisive.get("lastTransitionTime")
        return Finish(success=success, message=str(message), at=moment(at))

    def succeeded(self, obj: Object) -> bool | None:
        """Whether a finished object has ended well; None before its end."""
        view: View | None = None
        for name, of, types in (("success", True, _SUCCESS), ("failure", False, _FAILURE)):
            if name in self._expressions:
                view = view or self._views.of(obj)
                ended = bool(view.results.get(name))
            else:
                ended = any(c.get("status") == "True" for c in _conditions(obj, types))
            if ended:
                return of
        return None

    def pod_sets(self, obj: Object) -> list[Object]:
        """The pod sets in the form of `Workload.spec.podSets`. Raises `ObjectError` with all problems."""
        view = self._views.of(obj)
        if view.problems:
            raise ObjectError("; ".join(self.problems(obj)))
        return [pod_set_of(obj, asked) for asked in view.pod_sets]

    def priority_class(self, obj: Object) -> str:
        """The PriorityClass that the object names outside of its templates; empty if it names none."""
        return str(self._views.seldom("priorityClass", obj) or "")

    def refusals(self, obj: Object) -> list[str]:
        """Why the object is refused: field, value and what to do. Empty if it may wait and run."""
        return [
            f"{'.'.join(rule.field)}: {_value(found(obj, rule.field))}: {rule.message}"
            for rule in self._compiled.refusals
            if value_of(rule.when.expression, obj) is True
        ]

    def runs_elsewhere(self, obj: Object) -> bool:
        """Whether the object says that MultiKueue runs it on another cluster."""
        return bool(found(obj, self.managed_by) == MANAGER)

    def reclaimable(self, obj: Object) -> dict[str, int]:
        """Pod set to the number of its pods that finished and will not run again."""
        return {a.name: a.reclaimable for a in self._views.of(obj).pod_sets if a.reclaimable > 0}

    def variants(self, obj: Object) -> list[Object]:
        """What single pods ask for, in the form of pod sets, where they can differ from their pod set."""
        del obj
        return []

    def released(self, obj: Object) -> dict[str, int] | None:
        """Pod set to the number of pods that were let go. None: all are let go together."""
        del obj
        return None

    def members(self, obj: Object) -> Members | None:
        """How many objects a group has; None for an object by itself."""
        del obj
        return None

    def why_incomplete(self, obj: Object) -> str | None:
        """What a group lacks; None if nothing."""
        del obj
        return None

    def marks(self, obj: Object) -> dict[str, str]:
        """The annotations that a new object gets because of its group."""
        metadata, spec = obj.get("metadata") or {}, self.group
        if spec is None or not (metadata.get("labels") or {}).get(spec.label):
            return {}
        given = (metadata.get("annotations") or {}).get(spec.role)
        return {} if given else {spec.role: role_hash(obj.get("spec") or {})}

    def hold(self, obj: Object) -> list[Object]:
        """JSON patch that holds an object that has not started; with a gate, one that is created."""
        if self.gate is not None:
            others = [gate for gate in _gates(obj) if gate.get("name") != self.gate.name]
            gates = [*others, {"name": self.gate.name}]
            added = [{"op": "add", "path": _GATES, "value": gates}]
            return [_uid_test(obj), *with_missing_maps(obj, added)]
        return [_uid_test(obj), *self._patch("hold", self._hold, obj)]

    def release(self, obj: Object, infos: Sequence[PodSetInfo]) -> list[Object]:
        """JSON patch that starts a held object. Raises `ObjectError`.

        The patch contains `test` operations. They fail if the object is not held any more, or has
        another uid.
        """
        patch = self._release_patch(obj)
        by_name = {info.name: info for info in infos}
        assigned = [
            operation
            for asked in self._views.of(obj).pod_sets
            if asked.name in by_name
            for operation in given(obj, asked, by_name[asked.name])
        ]
        return [
            _uid_test(obj),
            *(operation for operation in patch if operation["op"] == "test"),
            *with_missing_maps(obj, assigned),
            *(operation for operation in patch if operation["op"] != "test"),
        ]

    def _release_patch(self, obj: Object) -> list[Object]:
        if self.gate is None:
            return self._patch("release", self._release, obj)
        gates = list(_gates(obj))
        left = [gate for gate in gates if gate.get("name") != self.gate.name]
        return [
            {"op": "test", "path": _GATES, "value": gates},
            {"op": "replace", "path": _GATES, "value": left},
        ]

    def restore(self, obj: Object, pod_sets: Sequence[Object]) -> list[Object] | None:
        """JSON patch that gives a held object its original pod sets back.

        It undoes what `release` wrote. None if there is nothing to undo: an object with a gate was never
        released.
        """
        if self.gate is not None:
            return None
        before = {p.get("name"): p for p in pod_sets}
        patch = [
            operation
            for asked in self._views.of(obj).pod_sets
            if asked.name in before
            for operation in taken_back(obj, asked, before[asked.name])
        ]
        if not patch:
            return None
        tests = (o for o in self._patch("release", self._release, obj) if o["op"] == "test")
        return [_uid_test(obj), *tests, *patch]

    def stop(self, obj: Object) -> list[Object] | None:
        """JSON patch that stops a running object so that it can start again.

        None if the kind cannot be stopped and resumed; see `deletes`.
        """
        match self._stop:
            case "Never" | "Delete":
                return None
            case "Patch":
                return [_uid_test(obj), *self._patch("stop", (), obj)]
            case _:
                return self.hold(obj)

    def end(self, obj: Object) -> list[Object] | None:
        """JSON patch that ends an object for good, so that a copy can wait in its place.

        None if the kind does not support that.
        """
        if "end" not in self._patches:
            return None
        return [_uid_test(obj), *self._patch("end", (), obj)]

    def cancel(self, obj: Object) -> list[Object] | None:
        """JSON patch that ends an object at once because it runs without admission.

        None if the kind does not support that.
        """
        if "cancel" not in self._patches:
            return self.end(obj)
        return [_uid_test(obj), *self._patch("cancel", (), obj)]

    def carry(self, obj: Object) -> Object:
        """The part of the spec that a copy on another cluster has as well."""
        return _applied(obj.get("spec") or {}, self._patch("carry", self._carry, obj))

    def carry_held(self, obj: Object) -> Object:
        """The spec of a new copy on another cluster. The copy is held, whatever the user chose."""
        carried = self.carry(obj)
        return (
            carried if self.held(obj) else _applied(carried, self._patch("hold", self._hold, obj))
        )

    def ending_changes(self, obj: Object, changes: Object) -> Object:
        """The part of `changes` to the spec that stops the object or makes it end sooner.

        Any other change could start a held object, or make it another job.
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
            for which, otherwise in (("hold", self._hold), ("stop", ()), ("end", ()))
            for operation in self._patch(which, otherwise, obj)
            if operation["path"] == path
        ]
        if any(operation.get("value") == value for operation in wanted):
            return True
        releases = self._patch("release", self._release, obj)
        removes = any(o["op"] == "remove" and o["path"] == path for o in releases)
        return bool(wanted) and removes and bool(value)

    def _patch(self, name: str, otherwise: tuple[Operation, ...], obj: Object) -> list[Object]:
        operations = self._patches.get(name, otherwise)
        patch = [written_out for o in operations for written_out in self._operation(o, obj)]
        return with_missing_maps(obj, patch)

    def _operation(self, operation: Operation, obj: Object) -> Iterator[Object]:
        if operation.when is not None and self._value(operation.when, obj) is not True:
            return
        step: Object = {"op": operation.op, "path": operation.path}
        if operation.value_from is not None:
            step["value"] = self._value(operation.value_from, obj)
        elif operation.op != "remove":
            step["value"] = operation.value
        yield step

    def _value(self, slot: Any, obj: Object) -> Any:
        result = value_of(slot.expression, obj)
        if isinstance(result, Failure):
            raise ObjectError(f"Integration {self.name}: {slot.field}: {result.reason}")
        return result


def _gates(obj: Object) -> Sequence[Object]:
    """The scheduling gates of a pod."""
    gates = found(obj, ("spec", "schedulingGates"))
    return [g for g in gates if isinstance(g, dict)] if isinstance(gates, list) else []


def _applied(spec: Object, operations: Sequence[Object]) -> Object:
    """The spec of an object after these operations."""
    whole: Object = {"spec": spec}
    for operation in operations:
        path = tokens(operation["path"])
        if operation["op"] == "remove":
            whole = without(whole, path)
        elif operation["op"] == "add" or found(whole, path) is not None:
            whole = written(whole, path, operation["value"])
    changed: Object = whole["spec"]
    return changed


def _value(value: Any) -> str:
    """A value of an object, for people; a map or a list is too long."""
    if value is None:
        return "absent"
    return "set" if isinstance(value, dict | list) else shown(value).replace("True", "true")


def _uid_test(obj: Object) -> Object:
    return {"op": "test", "path": "/metadata/uid", "value": obj["metadata"]["uid"]}


def _conditions(obj: Object, types: Sequence[str]) -> list[Object]:
    """The conditions of these types, in the order of `types`."""
    status = obj.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    if not conditions or not isinstance(conditions, list):
        return []
    known = [c for c in conditions if isinstance(c, dict)]
    return [c for type_ in types for c in known if c.get("type") == type_]


def _decisive(obj: Object) -> Object | None:
    """The condition that reports the end: one that is True, else one that is False."""
    decisive = _conditions(obj, _DECISIVE)
    for status in ("True", "False"):
        for condition in decisive:
            if condition.get("status") == status:
                return condition
    return None
