"""One kind of job that can wait, as its document describes it.

All methods are pure: they take an object and return facts or patches.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import islice
from typing import Final

from shared.contracts.controllers import MULTIKUEUE
from shared.contracts.kube.bodies import annotations_of, labels_of, map_at, maps_at, spec_of
from shared.contracts.kube.conditions import is_true
from shared.contracts.kube.kinds import POD, TASK_RUN, Kind, Object
from shared.contracts.kueue.integrations import Integration as Document
from shared.contracts.messages.workloads import Finish, Members
from shared.integrations.compiled import Compiled, PodGroupsPlan, Slot, compiled
from shared.integrations.document import Lines, read
from shared.integrations.ended import FAILURE, SUCCESS, message_and_time
from shared.integrations.errors import ObjectError
from shared.integrations.expressions import together
from shared.integrations.pointers import Tokens, entries, found, pointer, with_missing_maps
from shared.integrations.related.wrapped import (
    ITEMS_MAX,
    Reader,
    ReaderOf,
    refusals_inside,
    shown_item,
)
from shared.integrations.schema import check_schema
from shared.integrations.shape import role_hash
from shared.integrations.views import View, Views, moment, refused
from shared.integrations.writing.patches import Patches, applied, only_ends, operation
from shared.integrations.writing.templates import (
    PodSetInfo,
    given,
    placements,
    placements_taken_back,
    pod_set_of,
    taken_back,
)

_GATES: Final = "/spec/schedulingGates"
_GATES_AT: Final = ("spec", "schedulingGates")
_SUSPEND: Final = "spec.suspend"
_MANAGED_BY: Final = "spec.managedBy"
_PODS: Final = (POD.group, POD.kind)
_ALL: Final = ("*", "*")
_NO_JOBS: Final = frozenset((_PODS, (TASK_RUN.group, TASK_RUN.kind)))


def _of_nobody(_group: str, kind: str) -> Reader | None:
    raise ObjectError(f"{kind} is inside another object, and nobody knows how it is read")


class Integration:
    """How to read, hold, release, stop and count the objects of one kind."""

    is_group = False
    """True if its objects are groups of the objects of that kind."""

    def __init__(
        self,
        document: Document,
        compile_: Callable[[], Compiled],
        reader_of: ReaderOf = _of_nobody,
    ) -> None:
        """`compile_` is called when the first expression is needed: most processes need few kinds.

        `reader_of` finds the Integrations of objects that are inside of its objects.
        """
        self.document = document
        self.compile = compile_
        self._reader_of = reader_of
        spec = document.spec
        of = spec.kind
        self.kind = Kind(group=of.group, version=of.version, plural=of.plural, kind=of.kind)
        self._suspended = tuple((spec.suspend_field or _SUSPEND).split("."))
        self.gate = spec.gate
        """The scheduling gate that holds its objects; None: a field does."""

        self.group = spec.group
        """By what its objects say that several of them are one workload; None: each is by itself."""

        self.users_write_status = spec.status_subresource is False
        """True if who may change an object may write its status, too."""

        self.propagates = spec.propagate is not None
        """True if its pods wait instead of its objects."""

        stop = self.document.spec.stop
        self._stop = stop.how if stop is not None else "Hold" if spec.gate is None else "Delete"
        self.forget = () if stop is None else tuple(stop.forget or ())
        """Prefixes of labels and annotations that the copy of an ended job does not take over."""

        webhook = self.document.spec.webhook
        asked = self.document.spec.pod_sets
        self.wraps = any(p.wrapped is not None for p in asked)
        """True if its objects have others inside, whose pods are theirs."""

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

        self._patches = self._patches_of(pointer(self._suspended), pointer(self.managed_by))
        children = [(each.group, each.kind) for each in self.document.spec.children or ()]
        self._makes_all = _ALL in children
        self._children = frozenset(children) - _NO_JOBS
        self.makes_jobs = bool(self._children)  # Which run on its quota.
        self.makes_pods = not children or self._makes_all or _PODS in children
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

    def among(self, reader_of: ReaderOf) -> "Integration":
        """Itself beside those of other kinds, which are found by group and kind."""
        return type(self)(self.document, self.compile, reader_of) if self.wraps else self

    @classmethod
    def shipped(cls, obj: Object, lines: Lines) -> "Integration":
        """A document that tests have checked; its expressions are compiled when they are needed."""
        document = read(obj, lines)
        return cls(document, cache(lambda: compiled(document, lines)))

    def check_schema(self, definition: Object) -> None:
        """Check each path against the CustomResourceDefinition of the kind. Raises `IntegrationError`."""
        check_schema(self._compiled, definition)

    @cached_property
    def _compiled(self) -> Compiled:
        return self.compile()

    @cached_property
    def _views(self) -> Views:
        return Views(self._compiled, self._reader_of)

    @property
    def _expressions(self) -> Mapping[str, Slot]:
        return self._compiled.single

    def _patches_of(self, suspend: str, managed_by: str) -> Patches:
        defaults = {
            "hold": (operation("add", suspend, True),),
            "release": (operation("test", suspend, True), operation("replace", suspend, False)),
            "carry": (operation("remove", managed_by),),
        }
        return Patches(self.name, lambda: self._compiled.patches, defaults)

    @property
    def pods_outlive_status(self) -> bool:
        """Whether its status may say that it has ended or waits while its pods run."""
        return self.document.spec.pods_outlive_status is True

    def pod_names(self, obj: Object) -> frozenset[str]:
        """Names of pods of its own that its controller tells in its status."""
        path = (self.document.spec.pod_names or "").split(".")
        return frozenset(name for name, _ in entries(found(obj, path)))

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
        """Why it cannot be read: field of the document, or of the object, and reason."""
        return self._problems_of(self._views.of(obj))

    def _problems_of(self, view: View) -> tuple[str, ...]:
        return (*(f"Integration {self.name}: {p}" for p in view.problems), *view.faults)

    def matches(self, obj: Object) -> bool:
        """Whether the object can wait.

        True if that cannot be decided: the object then waits, and its reason says what failed.
        """
        return "match" not in self._expressions or _is_meant(self._views.of(obj))

    def makes(self, kind: Kind) -> bool:
        """Whether the controller of this kind makes jobs of that kind, which run on its quota."""
        made = (kind.group, kind.kind)
        return made in self._children or (self._makes_all and made not in _NO_JOBS)

    @property
    def looks_elsewhere(self) -> bool:
        """True if the pods of its objects are in others."""
        return self.wraps

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
            return any(gate.get("name") == self.gate.name for gate in maps_at(obj, *_GATES_AT))
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
        message = self._views.evaluate_on_demand("message", obj)
        at = self._views.evaluate_on_demand("at", obj)
        text, since = message_and_time(obj)
        message, at = text if message is None else message, since if at is None else at
        return Finish(success=success, message=str(message), at=moment(at))

    def succeeded(self, obj: Object) -> bool | None:
        """Whether a finished object has ended well; None before its end."""
        view: View | None = None
        for name, of, types in (("success", True, SUCCESS), ("failure", False, FAILURE)):
            if name in self._expressions:
                view = view or self._views.of(obj)
                ended = bool(view.results.get(name))
            else:
                ended = is_true(obj, *types)
            if ended:
                return of
        return None

    def pod_sets(self, obj: Object) -> list[Object]:
        """The pod sets in the form of `Workload.spec.podSets`. Raises `ObjectError` with all problems."""
        return [pod_set for _, pod_set in self.templates(obj)]

    def templates(self, obj: Object) -> list[tuple[Tokens, Object]]:
        """Path of its template and pod set, of each. Raises `ObjectError` with all problems."""
        return self._templates_of(self._views.of(obj), obj)

    def counted(self, obj: Object) -> list[tuple[Tokens, Object]]:
        """The same of an object inside of another one; nothing of one that cannot wait."""
        view = self._views.look(obj)
        return self._templates_of(view, obj) if _is_meant(view) else []

    def _templates_of(self, view: View, obj: Object) -> list[tuple[Tokens, Object]]:
        if problems := self._problems_of(view):
            raise ObjectError("; ".join(problems))
        return [(asked.template_path, pod_set_of(obj, asked)) for asked in view.pod_sets]

    def priority_class(self, obj: Object) -> str:
        """The PriorityClass that the object names outside of its templates; empty if it names none."""
        return str(self._views.evaluate_on_demand("priorityClass", obj) or "")

    def refusals(self, obj: Object) -> list[str]:
        """Why the object is refused: field, value and what to do. Empty if it may wait and run."""
        large = (f"Integration {self.name}: {why}" for why in self._views.why_too_large(obj))
        own = [*large, *refused(self._compiled.refusals, obj)]
        if not self.wraps:
            return own
        with together():
            return [*own, *self._refusals_inside(obj)]

    def _refusals_inside(self, obj: Object) -> Iterator[str]:
        yield from self._views.of(obj).faults
        for plan in self._compiled.pod_sets:
            if plan.wrapped is None:
                continue
            each = plan.each or ()
            for key, item in islice(entries(found(obj, each)), ITEMS_MAX):
                where = shown_item(each, key)
                yield from refusals_inside(item, plan.wrapped, where, self._reader_of)

    def runs_elsewhere(self, obj: Object) -> bool:
        """Whether the object says that MultiKueue runs it on another cluster."""
        return bool(found(obj, self.managed_by) == MULTIKUEUE)

    def reclaimable(self, obj: Object) -> dict[str, int]:
        """Pod set to the number of its pods that finished and will not run again."""
        return {a.name: a.reclaimable for a in self._views.of(obj).pod_sets if a.reclaimable > 0}

    def running(self, obj: Object) -> dict[str, int]:
        """Pod set to the number of its pods that run, where the document says how that is told."""
        return {a.name: a.running for a in self._views.of(obj).pod_sets if a.running > 0}

    def ending(self, obj: Object) -> dict[str, int]:
        """Pod set to the number of its pods that were told to end and still run."""
        return {a.name: a.ending for a in self._views.of(obj).pod_sets if a.ending > 0}

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
        spec = self.group
        if spec is None or not labels_of(obj).get(spec.label):
            return {}
        given = annotations_of(obj).get(spec.role)
        return {} if given else {spec.role: role_hash(spec_of(obj))}

    def hold(self, obj: Object) -> list[Object]:
        """JSON patch that holds an object that has not started; with a gate, one that is created."""
        if self.gate is not None:
            there = maps_at(obj, *_GATES_AT)
            others = [gate for gate in there if gate.get("name") != self.gate.name]
            added = [{"op": "add", "path": _GATES, "value": [*others, {"name": self.gate.name}]}]
            return [_uid_test(obj), *with_missing_maps(obj, added)]
        return [_uid_test(obj), *self._patches.written("hold", obj)]

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
        assigned += placements(obj, self._views.of(obj).pod_sets, by_name)
        return [
            _uid_test(obj),
            *(operation for operation in patch if operation["op"] == "test"),
            *with_missing_maps(obj, assigned),
            *(operation for operation in patch if operation["op"] != "test"),
        ]

    def _release_patch(self, obj: Object) -> list[Object]:
        if self.gate is None:
            return self._patches.written("release", obj)
        gates = list(maps_at(obj, *_GATES_AT))
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
        patch += placements_taken_back(obj, self._views.of(obj).pod_sets)
        if not patch:
            return None
        tests = (o for o in self._patches.written("release", obj) if o["op"] == "test")
        return [_uid_test(obj), *tests, *patch]

    def stop(self, obj: Object) -> list[Object] | None:
        """JSON patch that stops a running object so that it can start again.

        None if the kind cannot be stopped and resumed; see `deletes`.
        """
        match self._stop:
            case "Never" | "Delete":
                return None
            case "Patch":
                return [_uid_test(obj), *self._patches.written("stop", obj)]
            case _:
                return self.hold(obj)

    def end(self, obj: Object) -> list[Object] | None:
        """JSON patch that ends an object for good, so that a copy can wait in its place; None: it cannot."""
        if not self._patches.says("end"):
            return None
        return [_uid_test(obj), *self._patches.written("end", obj)]

    def cancel(self, obj: Object) -> list[Object] | None:
        """JSON patch that ends an object at once because it runs without admission.

        None if the kind does not support that.
        """
        if not self._patches.says("cancel"):
            return self.end(obj)
        return [_uid_test(obj), *self._patches.written("cancel", obj)]

    def carry(self, obj: Object) -> Object:
        """The part of the spec that a copy on another cluster has as well."""
        return applied(spec_of(obj), self._patches.written("carry", obj))

    def carry_held(self, obj: Object) -> Object:
        """The spec of a new copy on another cluster. The copy is held, whatever the user chose."""
        carried = self.carry(obj)
        return carried if self.held(obj) else applied(carried, self._patches.written("hold", obj))

    def ending_changes(self, obj: Object, changes: Object) -> Object:
        """The part of `changes` to the spec that stops the object or makes it end sooner.

        Any other change could start a held object, or make it another job.
        """
        counts = {asked.plan.count_field for asked in self._views.of(obj).pod_sets}
        return {
            name: value
            for name, value in changes.items()
            if only_ends(obj, name, value, self._patches, counts)
        }


def _is_meant(view: View) -> bool:
    """Whether the document means the object, also if that cannot be decided."""
    return bool(view.results.get("match", True))


def _uid_test(obj: Object) -> Object:
    return {"op": "test", "path": "/metadata/uid", "value": map_at(obj, "metadata").get("uid")}
