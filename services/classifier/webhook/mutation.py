"""Mutates an object at its creation. Pure: takes an object, returns a patch or raises a refusal.

The order is that of tekton-kueue's webhook: hold the run, set the queue label if it names no queue,
override `managedBy`, then apply what the expressions return. Two things differ: a second call changes
nothing more, and an annotation records that the author created the run paused.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from services.classifier.cel import Mutation
from services.classifier.evaluation.expressions import Evaluation, evaluate
from services.classifier.metrics import EVALUATIONS, FAILURE, MUTATIONS, SUCCESS, counted
from services.classifier.refusal import (
    RefusedError,
    WebhookRule,
    check_metadata,
    malformed,
    read_object,
    read_strings,
)
from services.classifier.rules import Rules
from services.classifier.validation import RULES, Problem
from services.classifier.validation.labels import labels, topology
from services.classifier.validation.reading import mapping
from services.classifier.webhook.context import DEFAULT_CONTEXT, NamespaceContext
from services.classifier.webhook.coscheduling import apply_coscheduling, task_run_affinity_patch
from services.classifier.webhook.draft import Draft, MutationResult
from shared.contracts.controllers import MULTIKUEUE
from shared.contracts.coscheduling import AFFINITY_ANNOTATION, CoscheduleError
from shared.contracts.kube import names
from shared.contracts.kube.bodies import map_at, owners_of
from shared.contracts.kube.kinds import PIPELINE_RUN, POD, Object
from shared.contracts.webhook import KEPT_IN_USE
from shared.integrations import Integration, Integrations, ObjectError, controller_uid, queue_of
from shared.integrations.groups.marks import annotations_for, group_marks, templates_of

__all__ = [
    "Evaluate",
    "MutationResult",
    "RefusedError",
    "evaluate_here",
    "mutate",
    "no_traceparent",
]

Evaluate = Callable[[Rules, Evaluation], list[Mutation]]
"""Evaluates all expressions. May raise `RefusedError`."""


def evaluate_here(rules: Rules, evaluation: Evaluation) -> list[Mutation]:
    """Evaluate in this process, for callers without a pool: nothing can cut it off."""
    return evaluate(rules.programs, evaluation)


def no_traceparent() -> None:
    """Start no trace: for callers without tracing, and for dry runs."""


def mutate(
    obj: Object,
    rules: Rules,
    *,
    namespace: str | None = None,
    new_traceparent: Callable[[], str | None] = no_traceparent,
    context: NamespaceContext = DEFAULT_CONTEXT,
    evaluation: Evaluate = evaluate_here,
) -> MutationResult:
    """Hold and classify an object. `obj` does not change; its own result would not change either.

    `namespace` is the request's, for an object that does not carry it yet. `new_traceparent` starts a
    trace; it is called for an accepted object without one. An object is left alone if its kind cannot
    be held, if it is a job without a queue (unless `context` decides otherwise), or if an admitted object
    of its namespace controls it, of a kind whose controller makes such jobs. Raises `RefusedError`.
    """
    check_metadata(obj)
    integration = integration_of(obj, context.integrations)
    if integration is None:
        return _with_finalizer(obj) if _is_kept_in_use(obj) else _with_affinity(obj)
    if not context.managed or not integration.matches(obj):
        return MutationResult(object=obj, patch=())
    if _is_left_alone(obj, integration, context):
        return MutationResult(object=obj, patch=())
    if integration.propagates:
        if queue_of(obj):
            _check_rules(obj, integration)
        return propagated(obj, integration, context.integrations)
    classify = integration.classify
    is_run = integration.kind.detail == PIPELINE_RUN.detail
    given = read_strings(read_object(obj, "metadata"), "labels")
    # An empty label exempts a run from its default queue. On a job it counts as no label.
    named = names.QUEUE in given if classify else bool(queue_of(obj))
    default = rules.queue_name if classify else integration.default_queue or context.default_queue
    if not classify and not (named or default or context.manage_without_queue):
        return MutationResult(object=obj, patch=())
    draft = _held(obj, integration, context)
    if not named and default:
        draft.labels[names.QUEUE] = default
    if classify:
        _classify(draft, rules, namespace, is_run=is_run, evaluation=evaluation)
    queue = draft.labels.get(names.QUEUE, "")
    if context.uses_multikueue(queue):
        draft.set_managed_by(integration)
    try:
        apply_coscheduling(draft.annotations, draft.spec, is_run=is_run)
    except CoscheduleError as error:
        raise RefusedError(WebhookRule.COSCHEDULING, problem=error) from error
    class_ = context.default_priority_class(queue)
    if class_ and names.PRIORITY_CLASS_LABEL not in draft.labels:
        draft.labels[names.PRIORITY_CLASS_LABEL] = class_
    draft.set_traceparent(integration, new_traceparent)
    return draft.result()


def _held(obj: Object, integration: Integration, context: NamespaceContext) -> Draft:
    """Begin a draft that waits. Raises `RefusedError` for what could not be counted or stopped."""
    for refusal in integration.refusals(obj):
        raise not_countable(obj, integration, refusal)
    if has_rules(integration):
        _check_rules(obj, integration)
    _check_stays_here(obj, integration, context)
    draft = Draft(obj)
    held_apart = bool(controller_uid(obj)) and not integration.gate
    draft.record_user_pending(integration, held_apart=held_apart)
    try:
        draft.join_group(integration)
    except ObjectError as error:
        raise not_countable(obj, integration, str(error)) from error
    draft.hold(integration)
    return draft


def _classify(
    draft: Draft, rules: Rules, namespace: str | None, *, is_run: bool, evaluation: Evaluate
) -> None:
    """Apply the rules to the draft, in the place of what they made of it before."""
    if rules.multi_kueue_override:
        draft.spec["managedBy"] = MULTIKUEUE
    if not len(rules.programs):
        return
    undone = draft.undo_requests()
    mutations = _evaluate(draft, rules, namespace, is_run=is_run, evaluation=evaluation)
    with counted(MUTATIONS):
        draft.apply(mutations, undone)


_NOT_ELSEWHERE: Final = (
    "that queue leads to other clusters, where objects of this kind cannot run; name another one"
)


_PODS_DO_NOT_WAIT: Final = (
    "its pods are to wait instead, but pods do not wait here: list the framework `pod` in the configuration "
    "(integrations.frameworks)"
)


def propagated(
    obj: Object, integration: Integration, integrations: Integrations, old: Object | None = None
) -> MutationResult:
    """Return an object whose pods wait instead, with the labels of its queue on their template.

    `old`: the object before a change; None for a new one. Raises `RefusedError` for one that the
    document refuses.
    """
    if not queue_of(obj):
        return MutationResult(object=obj, patch=())
    for refusal in integration.refusals(obj):
        raise not_countable(obj, integration, refusal)
    pods = integrations.find(group=POD.group, kind=POD.kind)
    if pods is None:
        raise not_countable(obj, integration, _PODS_DO_NOT_WAIT)
    draft = Draft(obj)
    try:
        labels, annotations = group_marks(obj, integration, pods.group)
    except ObjectError as error:
        raise not_countable(obj, integration, str(error)) from error
    for path in templates_of(obj, integration):
        draft.propagate(path, labels, {**annotations_for(path, integration, old), **annotations})
    return draft.result()


def has_rules(integration: Integration) -> bool:
    """Whether Kueue's rules are kept here: not for runs, nor for what validation has rules for."""
    kind = integration.kind
    return not integration.classify and (kind.group, kind.kind) not in RULES


def _check_rules(obj: Object, integration: Integration) -> None:
    """Raise `RefusedError` for labels that name nothing, and for topologies that cannot be."""
    check_problems(obj, integration, (*labels(obj), *topologies(obj, integration)))


def check_problems(obj: Object, integration: Integration, problems: Iterable[Problem]) -> None:
    """Raise `RefusedError` with all problems, if there are any."""
    if text := "; ".join(map(str, problems)):
        raise not_countable(obj, integration, text)


def topologies(obj: Object, integration: Integration) -> Iterator[Problem]:
    """Yield what is wrong with the topologies for which the pods of an object ask.

    Where the document fails on the object, that waits and its reason says so.
    """
    try:
        pod_sets = integration.pod_sets(obj)
    except ObjectError:
        return
    # A pod is one of its group, and the pods of a template may be scaled.
    limits = integration.gate is None and not integration.propagates
    for pod_set in pod_sets:
        annotations = mapping(pod_set, "template", "metadata", "annotations")
        pods = pod_set["count"] if limits else None
        yield from topology(f"pods of {pod_set['name']}: metadata", annotations, pods)


def described(obj: Object, integration: Integration) -> str:
    """Kind, namespace and name of an object, for messages."""
    metadata = map_at(obj, "metadata")
    return f"{integration.kind.kind} {metadata.get('namespace') or ''}/{metadata.get('name') or ''}"


def not_countable(obj: Object, integration: Integration, problem: str) -> RefusedError:
    """Return the refusal of an object that could not be counted or stopped."""
    where = described(obj, integration)
    return RefusedError(WebhookRule.NOT_COUNTABLE, of=where, problem=problem)


def _is_left_alone(obj: Object, integration: Integration, context: NamespaceContext) -> bool:
    """Return whether another object waits for this one, or this pod names no queue."""
    if controller_uid(obj) and is_covered(obj, integration, context):
        return True
    if integration.gate is None:
        return False
    return not queue_of(obj) or context.integrations.runs_with_controller(obj, integration)


def _check_stays_here(obj: Object, integration: Integration, context: NamespaceContext) -> None:
    """Raise `RefusedError` for a pod in a queue that leads to other clusters."""
    queue = queue_of(obj)
    if integration.gate is not None and context.uses_multikueue(queue):
        problem = f"metadata.labels[{names.QUEUE}]: {queue!r}: {_NOT_ELSEWHERE}"
        raise not_countable(obj, integration, problem)


_KEPT_IN_USE: Final = frozenset((kind.group, kind.kind) for kind in KEPT_IN_USE)


def _is_kept_in_use(obj: Object) -> bool:
    return (str(obj["apiVersion"]).rpartition("/")[0], obj["kind"]) in _KEPT_IN_USE


def _with_finalizer(obj: Object) -> MutationResult:
    """Add the finalizer that keeps a queue or a flavor while it is in use, as Kueue's webhook does."""
    metadata = read_object(obj, "metadata")
    given = metadata.get("finalizers")
    finalizers = [str(one) for one in given] if isinstance(given, list) else []
    if names.RESOURCE_IN_USE in finalizers:
        return MutationResult(object=obj, patch=())
    finalizers.append(names.RESOURCE_IN_USE)
    return MutationResult(
        object={**obj, "metadata": {**metadata, "finalizers": finalizers}},
        patch=({"op": "add", "path": "/metadata/finalizers", "value": finalizers},),
    )


def _with_affinity(obj: Object) -> MutationResult:
    """Set the affinity annotation of a TaskRun in a coscheduled run; leave other kinds alone."""
    try:
        patch = task_run_affinity_patch(obj)
    except CoscheduleError as error:
        raise RefusedError(WebhookRule.COSCHEDULING, problem=error) from error
    if not patch:
        return MutationResult(object=obj, patch=())
    metadata = obj["metadata"]
    annotations = {**metadata["annotations"], AFFINITY_ANNOTATION: patch[0]["value"]}
    return MutationResult(
        object={**obj, "metadata": {**metadata, "annotations": annotations}}, patch=patch
    )


def integration_of(obj: Object, integrations: Integrations) -> Integration | None:
    """Return the integration of the object's kind; None if it cannot be held. Raises `RefusedError`."""
    api_version, kind = obj.get("apiVersion"), obj.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str):
        raise malformed("apiVersion and kind", "strings", [api_version, kind])
    integration = integrations.find(group=api_version.rpartition("/")[0], kind=kind)
    if integration is not None and api_version != integration.kind.api_version:
        raise RefusedError(
            WebhookRule.VERSION,
            kind=kind,
            wanted=integration.kind.api_version,
            given=api_version,
        )
    return integration


def is_covered(obj: Object, integration: Integration, context: NamespaceContext) -> bool:
    """Return whether the object names an admitted controller whose quota is for such objects.

    Kind and uid of the reference are its author's: both must be those of the admitted object. A controller
    that belongs to the workload of another one is admitted with that one, and nobody here has seen it: it
    is taken at its word where such a one is admitted. The projection knows, and stops what is not covered.
    """
    if not context.integrations.has_waiting_controller(obj, integration.kind):
        return False
    owner = next(each for each in owners_of(obj) if each.get("controller"))
    if context.is_admitted_as(str(owner.get("uid")), str(owner.get("kind"))):
        return True
    return any(map(context.has_admitted, context.integrations.kinds_above_controller(obj)))


_NOT_EVALUATED: Final = frozenset(
    {WebhookRule.INVALID_RUN, WebhookRule.TOO_DEEP, WebhookRule.ITEMS, WebhookRule.VALUES}
)
"""Refusals of an object before an expression sees it."""


def _evaluate(
    draft: Draft, rules: Rules, namespace: str | None, *, is_run: bool, evaluation: Evaluate
) -> list[Mutation]:
    """Evaluate all expressions on the same copy of the object. Raises `RefusedError`."""
    obj = draft.without_own_annotations()
    labels = obj["metadata"]["labels"]
    own = obj["metadata"].get("namespace") or ""
    wanted = Evaluation(
        object=obj,
        is_run=is_run,
        namespace=own if isinstance(own, str) and own else (namespace or ""),
        pac_event_type=labels.get(names.PAC_EVENT, ""),
        pac_test_event_type=labels.get(names.PAC_TEST_EVENT, ""),
    )
    try:
        mutations = evaluation(rules, wanted)
    except RefusedError as error:
        if error.rule not in _NOT_EVALUATED:
            EVALUATIONS.labels(FAILURE).inc()
        raise
    EVALUATIONS.labels(SUCCESS).inc()
    return mutations
