"""What the webhook makes of an object at its creation. Pure: an object in, a patch or a refusal out.

The order is tekton-kueue's (`research/tekton.md` 1.3): hold the run, give it a queue if it names
none, override `managedBy`, then apply what the expressions ask for. Unlike there, a second call
changes nothing more, and a run that its author created paused is remembered as such.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, assert_never

import orjson

from services.classifier.cel import (
    AddRequest,
    EvaluationError,
    Mutation,
    SetAnnotation,
    SetLabel,
    Variables,
)
from services.classifier.metrics import EVALUATIONS, MUTATIONS, counted
from services.classifier.rules.rules import Rules
from services.classifier.tekton.defaulting import InvalidPipelineRunError, as_it_is, decode
from services.classifier.tekton.validation import validate
from services.classifier.webhook.coscheduling import check_and_count, follow_placeholder
from shared.contracts.coscheduling import AFFINITY_ANNOTATION, CoscheduleError
from shared.contracts.kube import names
from shared.contracts.kube.kinds import PIPELINE_RUN, Object
from shared.contracts.kube.names import REQUESTS_APPLIED
from shared.contracts.messages.spokes import MANAGER, ORIGIN
from shared.integrations import SHIPPED, Integration, Integrations, ObjectError, queue_of
from shared.integrations.pointers import tokens, written
from shared.telemetry.tracing import (
    carried,
    carrier_of,
    continued,
    made_together,
    parse_traceparent,
)

__all__ = [
    "ANYWHERE",
    "REQUESTS_APPLIED",
    "Mutated",
    "Place",
    "RefusedError",
    "anywhere",
    "mutate",
    "no_trace",
]

BAD_REQUEST: Final = 400
INTERNAL_ERROR: Final = 500

_OURS: Final = (names.USER_PENDING, names.TRACEPARENT_ANNOTATION, REQUESTS_APPLIED)
_PAC_EVENT: Final = "pipelinesascode.tekton.dev/event-type"
_PAC_TEST_EVENT: Final = "pac.test.appstudio.openshift.io/event-type"
_INT64: Final = 2**64


class RefusedError(Exception):
    """The object must not be created."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        """400: the object is at fault. 500: an expression failed on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutated:
    """An object as it should be created."""

    object: Object
    patch: tuple[Object, ...]
    """JSON patch from the object given; empty if nothing changes."""


def no_trace() -> None:
    """Start no trace: what callers without tracing, and dry runs, pass."""


def _no_class(_queue: str) -> str:
    return ""


def _here(_queue: str) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What holds where an object is created. The rules are Kueue's (`research/kueue.md` 1.2)."""

    managed: bool = True
    """False: the namespace is one whose jobs are nobody's business here."""

    default_queue: str = ""
    """LocalQueue of jobs that name none; empty: there is none."""

    holds_without_queue: bool = False
    """Whether jobs that get no queue wait all the same, until somebody gives them one."""

    default_class: Callable[[str], str] = _no_class
    """Of a LocalQueue: the WorkloadPriorityClass of jobs that name none; empty: there is none."""

    leads_elsewhere: Callable[[str], bool] = _here
    """Of a LocalQueue: whether what it admits runs on other clusters."""

    integrations: Integrations = SHIPPED
    """What is known of the kinds that can wait."""


ANYWHERE: Final = Place()


def anywhere(_namespace: str) -> Place:
    """Say that nothing in particular holds: what callers without a cluster pass."""
    return ANYWHERE


def mutate(
    given: Object,
    rules: Rules,
    *,
    namespace: str | None = None,
    new_traceparent: Callable[[], str | None] = no_trace,
    place: Place = ANYWHERE,
) -> Mutated:
    """Hold and classify an object. `given` is not changed; calling it on its own result neither.

    `namespace` is the request's, for an object that does not carry it yet. `new_traceparent` starts
    a trace; it is called when an object that carries none has been accepted. Kinds that cannot
    wait, Jobs without a queue (unless `place` says otherwise) and what another waiting object owns
    are left alone. Raises `RefusedError`.
    """
    integration = _integration(given, place.integrations)
    if integration is None:
        return _led(given)
    if not place.managed or not _waits(given, integration, place.integrations):
        return Mutated(object=given, patch=())
    classify = integration.classify
    is_run = integration.kind.detail == PIPELINE_RUN.detail
    labels = _labels(given)
    # A run may opt out of its default by an empty label; a job's empty label is as good as none.
    named = names.QUEUE in labels if classify else bool(queue_of(given))
    default = rules.queue_name if classify else integration.default_queue or place.default_queue
    if not classify and not (named or default or place.holds_without_queue):
        return Mutated(object=given, patch=())
    draft = _Draft(given)
    draft.remember_pause(integration)
    draft.hold(integration)
    if not named and default:
        draft.labels[names.QUEUE] = default
    if classify:
        if rules.multi_kueue_override:
            draft.spec["managedBy"] = MANAGER
        if len(rules.programs):
            undone = draft.undo_requests()
            wanted = _asked(draft, rules, namespace, is_run=is_run)
            with counted(MUTATIONS):
                draft.apply(wanted, undone)
    if place.leads_elsewhere(draft.labels.get(names.QUEUE, "")):
        draft.give_away(integration)
    try:
        check_and_count(draft.annotations, draft.spec, is_run=is_run)
    except CoscheduleError as error:
        raise RefusedError(BAD_REQUEST, str(error)) from error
    if names.PRIORITY_CLASS_LABEL not in draft.labels:
        class_ = place.default_class(draft.labels.get(names.QUEUE, ""))
        if class_:
            draft.labels[names.PRIORITY_CLASS_LABEL] = class_
    draft.trace(integration, new_traceparent)
    return draft.finished()


def _led(given: Object) -> Mutated:
    """A TaskRun of a coscheduled run may have to follow a placeholder; no other kind is touched."""
    try:
        patch = follow_placeholder(given)
    except CoscheduleError as error:
        raise RefusedError(BAD_REQUEST, str(error)) from error
    if not patch:
        return Mutated(object=given, patch=())
    metadata = given["metadata"]
    annotations = {**metadata["annotations"], AFFINITY_ANNOTATION: patch[0]["value"]}
    return Mutated(
        object={**given, "metadata": {**metadata, "annotations": annotations}}, patch=patch
    )


def _integration(given: Object, integrations: Integrations) -> Integration | None:
    api_version, kind = given.get("apiVersion"), given.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        raise RefusedError(BAD_REQUEST, "apiVersion and kind: must be strings")
    integration = integrations.find(group=api_version.rpartition("/")[0], kind=kind)
    if integration is not None and api_version != integration.kind.api_version:
        raise RefusedError(
            BAD_REQUEST,
            f"apiVersion: a {kind} must come as {integration.kind.api_version}, got {api_version!r} "
            "(the webhook's matchPolicy must be Equivalent)",
        )
    return integration


def _waits(given: Object, integration: Integration, integrations: Integrations) -> bool:
    """It is one that the integration means, and nothing else waits for it."""
    owners = _object(given, "metadata").get("ownerReferences")
    if owners is None:
        return integration.matches(given)
    if not isinstance(owners, list) or not all(isinstance(owner, dict) for owner in owners):
        raise RefusedError(BAD_REQUEST, "metadata.ownerReferences: must be a list of objects")
    return not integrations.is_nested(given) and integration.matches(given)


def _labels(given: Object) -> dict[str, str]:
    return _texts(_object(given, "metadata"), "labels")


def _asked(draft: "_Draft", rules: Rules, namespace: str | None, *, is_run: bool) -> list[Mutation]:
    """What the expressions want, all seeing the same copy of the object, without our own notes.

    A PipelineRun is shown as Tekton defaults it, any other kind as it is.
    """
    shown = draft.shown()
    labels = shown["metadata"]["labels"]
    own = shown["metadata"].get("namespace") or ""
    try:
        if is_run:
            seen = decode(shown)
            validate(seen)
        else:
            seen = as_it_is(shown)
        variables = Variables(
            pipeline_run=seen,
            namespace=own if isinstance(own, str) and own else (namespace or ""),
            pac_event_type=labels.get(_PAC_EVENT, ""),
            pac_test_event_type=labels.get(_PAC_TEST_EVENT, ""),
        )
        with counted(EVALUATIONS):
            return rules.programs.evaluate(variables)
    except InvalidPipelineRunError as error:
        raise RefusedError(BAD_REQUEST, str(error)) from error
    except EvaluationError as error:
        raise _failed(str(error)) from error


def _failed(problem: str) -> RefusedError:
    return RefusedError(INTERNAL_ERROR, f"CEL evaluation failed: {problem}")


_Notes = dict[str, tuple[str | None, str]]
"""By annotation: a request before rules added to it (None: absent), and what they made of it."""


class _Draft:
    """The object in the making: labels, annotations and spec are copies, the rest is shared."""

    def __init__(self, given: Object) -> None:
        self._given = given
        metadata = _object(given, "metadata")
        self.labels = _texts(metadata, "labels")
        self.annotations = _texts(metadata, "annotations")
        self.spec = dict(_object(given, "spec"))

    def remember_pause(self, integration: Integration) -> None:
        """Note whether the author wants the run paused. Only the first call can tell."""
        if integration.remember_pause and names.USER_PENDING not in self.annotations:
            paused = integration.held({"spec": self.spec})
            self.annotations[names.USER_PENDING] = "true" if paused else "false"

    def hold(self, integration: Integration) -> None:
        """Make it wait, with the integration's own patch less its tests."""
        metadata = {**_object(self._given, "metadata"), "uid": ""}
        try:
            operations = integration.hold({**self._given, "metadata": metadata})
        except ObjectError as error:
            raise RefusedError(INTERNAL_ERROR, str(error)) from error
        for operation in operations:
            if operation["op"] != "test":
                path = tokens(operation["path"])
                self.spec = written({"spec": self.spec}, path, operation["value"])["spec"]

    def give_away(self, integration: Integration) -> None:
        """Keep its own controller from writing the status that is to come from elsewhere."""
        own = integration.own_controller
        if own is not None and self.spec.get("managedBy") in (None, own):
            self.spec["managedBy"] = MANAGER

    def trace(self, integration: Integration, new_traceparent: Callable[[], str | None]) -> None:
        """Begin its trace, or go on with the one that its author is in, and have its controller join.

        An annotation that is there already is of an earlier call for the same object, or was copied with it
        from another, whose trace is not this one's. A spoke's copy is a part of its original's.
        """
        theirs, fresh = integration.trace_annotation, new_traceparent()
        given = carried(self.annotations.get(theirs))
        own = self.annotations.get(names.TRACEPARENT_ANNOTATION)
        copied = own is not None and fresh is not None and not made_together(own, fresh)
        if copied and ORIGIN not in self.labels:
            given, own = (None if given == own else given), None
        if own is None:
            if fresh is None:
                return
            own = self.annotations[names.TRACEPARENT_ANNOTATION] = continued(fresh, given)
        if theirs and given is None and parse_traceparent(own) is not None:
            self.annotations[theirs] = carrier_of(own)

    def shown(self) -> Object:
        """The object as expressions may see it."""
        annotations = {k: v for k, v in self.annotations.items() if k not in _OURS}
        metadata = {**_object(self._given, "metadata"), "labels": self.labels}
        return {
            **self._given,
            "metadata": {**metadata, "annotations": annotations},
            "spec": self.spec,
        }

    def undo_requests(self) -> _Notes:
        """Take back what an earlier call added, so that adding it again does not double it; what that was."""
        undone: _Notes = {}
        for resource, (before, after) in _noted(self.annotations.pop(REQUESTS_APPLIED, "")).items():
            key = names.REQUESTS_PREFIX + resource
            if self.annotations.get(key) != after:
                continue  # somebody has decided otherwise since: that is the value to add to
            undone[key] = (before, after)
            if before is None:
                del self.annotations[key]
            else:
                self.annotations[key] = before
        return undone

    def apply(self, mutations: list[Mutation], undone: _Notes) -> None:
        """Apply in order; amounts add up with what is there. Raises `RefusedError`.

        What was `undone` and nobody asks for now stands again: the rule may have seen, by what else it
        did, that it was applied.
        """
        asked = {m.key for m in mutations if isinstance(m, AddRequest)}
        before = {key: self.annotations.get(key) for key in asked}
        for key in undone:
            if key not in asked:
                before[key], self.annotations[key] = undone[key]
        for mutation in mutations:
            match mutation:
                case SetLabel():
                    self.labels[mutation.key] = mutation.value
                case SetAnnotation():
                    self.annotations[mutation.key] = mutation.value
                case AddRequest():
                    self.annotations[mutation.key] = self._sum(mutation)
                case _:
                    assert_never(mutation)
        if before:
            noted = {
                key.removeprefix(names.REQUESTS_PREFIX): [value, self.annotations[key]]
                for key, value in before.items()
            }
            note = orjson.dumps(noted, option=orjson.OPT_SORT_KEYS).decode()
            self.annotations[REQUESTS_APPLIED] = note

    def _sum(self, request: AddRequest) -> str:
        existing = self.annotations.get(request.key, "0")
        amount = _integer(existing)
        if amount is None:
            raise _failed(
                f"failed to parse existing resource value {existing!r} as integer for key "
                f"{request.key!r}: whole numbers only, because {request.amount} is added to it"
            )
        # As the reference counts: 64 bits, and no look at the carry.
        wrapped = (amount + request.amount + _INT64 // 2) % _INT64 - _INT64 // 2
        return str(wrapped)

    def finished(self) -> Mutated:
        """The object and the patch. Only what this module sets can be in the patch."""
        given_metadata = _object(self._given, "metadata")
        metadata = {**given_metadata}
        patch: list[Object] = []
        for field, new in (("labels", self.labels), ("annotations", self.annotations)):
            if new or given_metadata.get(field) is not None:
                metadata[field] = new
            patch += _difference(given_metadata.get(field), new, f"/metadata/{field}")
        patch += _difference(_object(self._given, "spec"), self.spec, "/spec")
        return Mutated(
            object={**self._given, "metadata": metadata, "spec": self.spec}, patch=tuple(patch)
        )


def _difference(old: Mapping[str, Any] | None, new: Mapping[str, Any], path: str) -> list[Object]:
    """JSON patch of one level: from `old` to `new`, keys in order."""
    if old is None:
        return [{"op": "add", "path": path, "value": dict(new)}] if new else []
    operations: list[Object] = [
        {"op": "remove", "path": f"{path}/{_pointer(key)}"} for key in old if key not in new
    ]
    for key, value in new.items():
        if key not in old:
            operations.append({"op": "add", "path": f"{path}/{_pointer(key)}", "value": value})
        elif old[key] is not value and old[key] != value:
            operations.append({"op": "replace", "path": f"{path}/{_pointer(key)}", "value": value})
    return operations


def _pointer(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _integer(text: str) -> int | None:
    """Read an int64 as Go's `Atoi`: ASCII digits and a sign, nothing else."""
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 400:
        return None
    value = int(text)
    return value if -_INT64 // 2 <= value < _INT64 // 2 else None


def _noted(text: str) -> dict[str, list[Any]]:
    """Read our own note. What is not one (a person may write anything there) is no note."""
    try:
        noted = orjson.loads(text) if text else {}
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(noted, dict):
        return {}
    return {
        resource: pair
        for resource, pair in noted.items()
        if isinstance(pair, list)
        and len(pair) == 2
        and isinstance(pair[1], str)
        and (pair[0] is None or isinstance(pair[0], str))
    }


def _object(holder: Mapping[str, Any], field: str) -> dict[str, Any]:
    value = holder.get(field)
    if value is None and field == "metadata":
        return {}
    if not isinstance(value, dict):
        raise RefusedError(BAD_REQUEST, f"{field}: must be an object, got {_kind(value)}")
    return value


def _texts(metadata: Mapping[str, Any], field: str) -> dict[str, str]:
    value = metadata.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RefusedError(BAD_REQUEST, f"metadata.{field}: must be an object, got {_kind(value)}")
    for key, text in value.items():
        if not isinstance(text, str):
            raise RefusedError(
                BAD_REQUEST, f"metadata.{field}[{key}]: must be a string, got {_kind(text)}"
            )
    return dict(value)


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {str(value)[:60]!r}"
