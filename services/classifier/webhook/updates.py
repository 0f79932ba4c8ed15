"""Reviews changes of jobs: nobody starts by hand what waits for quota. Pure.

This is the first of two lines. What passes here, because the webhook was away or does not know better, is
stopped by quota once it is observed (ADR 32).
"""

from services.classifier.refusal import RefusedError, WebhookRule, check_metadata
from services.classifier.validation.labels import changed_labels
from services.classifier.webhook.context import NamespaceContext
from services.classifier.webhook.draft import Draft, MutationResult
from services.classifier.webhook.mutation import (
    check_problems,
    described,
    has_rules,
    is_covered,
    not_countable,
    propagated,
    topologies,
)
from shared.contracts.kube import names
from shared.contracts.kube.bodies import annotations_of, labels_of, map_at, owners_of
from shared.contracts.kube.kinds import Object
from shared.integrations import Integration, ObjectError, controller_uid, queue_of
from shared.integrations.groups.marks import group_changes
from shared.integrations.pointers import found, tokens


def review_update(
    obj: Object, old: Object, integration: Integration, *, user: str, context: NamespaceContext
) -> MutationResult:
    """Return the object as it may be stored. `user` is the name of who changes it.

    A held job of ours that is not admitted stays held:

    1. Who ends their own pause asks to queue: it stays held, under our mark.
    2. Anybody else's start is refused, except the patcher's, and unless decisions are not read yet. To
       cancel it is no start.
    3. What stays held keeps the mark of our hold where label or controller change.
    4. What somebody lets go nevertheless keeps that mark, too, if nothing else in it tells that it is ours:
       who has not seen the hold reads it there.
    5. What loses the admitted controller whose quota it uses gets that mark: it waits by itself from now on.

    Raises `RefusedError`.
    """
    unchanged = MutationResult(object=obj, patch=())
    for each in (obj, old):
        check_metadata(each)
    if not context.managed:
        return unchanged
    if integration.propagates:
        is_left_alone = not integration.matches(old) or is_covered(obj, integration, context)
        return unchanged if is_left_alone else _propagated(obj, old, integration, context)
    if integration.matches(old):
        _check_refusals(obj, old, integration, context)
        if user not in context.patchers:
            _check_rules(obj, old, integration, context)
    if _is_let_out(obj, old, integration, context):
        return _marked(obj)
    if not integration.held(old):
        return _marked(obj) if _has_our_mark(old) and not _has_our_mark(obj) else unchanged
    if not _waits_for_quota(old, integration, context):
        return unchanged
    if integration.held(obj):
        return unchanged if _keeps_mark(obj, old) else _marked(obj)
    if _ends(obj, integration):
        return unchanged
    return _review_start(obj, old, integration, user=user, context=context)


def _waits_for_quota(old: Object, integration: Integration, context: NamespaceContext) -> bool:
    """Return whether a held job is held for its quota: it is ours, and not admitted."""
    if not integration.matches(old) or context.is_admitted(_uid(old)):
        return False
    return _is_ours(old, integration, context)


def _review_start(
    obj: Object, old: Object, integration: Integration, *, user: str, context: NamespaceContext
) -> MutationResult:
    """Return the object of a job that `user` lets go before it is admitted. Raises `RefusedError`."""
    unchanged = MutationResult(object=obj, patch=())
    if integration.remember_pause and annotations_of(old).get(names.USER_PENDING) == "true":
        return _held(obj, integration)
    if user in context.patchers:
        return unchanged
    if not context.patchers or not context.knows_decisions:
        marks = integration.remember_pause or not _keeps_mark(obj, old)
        return _marked(obj) if marks and not _has_our_mark(obj) else unchanged
    raise _not_admitted(old, integration)


def _propagated(
    obj: Object, old: Object, integration: Integration, context: NamespaceContext
) -> MutationResult:
    runs = integration.active(old)
    _check_changes(obj, old, integration, runs=runs, ran_before=runs)
    try:
        for problem in group_changes(obj, old, integration):
            raise not_countable(obj, integration, problem)
    except ObjectError as error:
        raise not_countable(obj, integration, str(error)) from error
    if queue_of(old) and not queue_of(obj):
        field = f"metadata.labels[{names.QUEUE}]"
        problem = (
            f"{field}: must stay {queue_of(old)!r}, or name another queue: its pods have it, too"
        )
        raise not_countable(obj, integration, problem)
    return propagated(obj, integration, context.integrations, old)


def _check_rules(
    obj: Object, old: Object, integration: Integration, context: NamespaceContext
) -> None:
    """Raise `RefusedError` for a change that users may not make, and patchers may."""
    _check_label(obj, old, integration)
    _check_group(obj, old, integration)
    _check_controller(obj, old, integration, context)
    _check_keeps_a_queue(obj, old, integration, context)
    if has_rules(integration):
        runs, ran_before = (not integration.held(one) for one in (obj, old))
        _check_changes(obj, old, integration, runs=runs, ran_before=ran_before)


def _check_changes(
    obj: Object, old: Object, integration: Integration, *, runs: bool, ran_before: bool
) -> None:
    """Raise `RefusedError` for a change that Kueue's rules forbid. What was wrong before is no reason."""
    problems = list(changed_labels(obj, old, runs=runs, ran_before=ran_before))
    if queue_of(obj) and obj.get("spec") != old.get("spec"):
        before = set(map(str, topologies(old, integration))) if queue_of(old) else set()
        problems += (one for one in topologies(obj, integration) if str(one) not in before)
    check_problems(obj, integration, problems)


def _check_refusals(
    obj: Object, old: Object, integration: Integration, context: NamespaceContext
) -> None:
    """Raise `RefusedError` for a change after which the object could not be counted any more.

    What was wrong before is no reason, if it was ours before: with a queue or without. A pod that runs
    without one is nobody's.
    """
    may_wait = integration.gate is None or integration.held(old)
    is_known = context.is_admitted(_uid(old)) or (may_wait and _is_ours(old, integration, context))
    was_ours = is_known or bool(queue_of(old))
    if not (was_ours or queue_of(obj)):
        return
    before = integration.refusals(old) if was_ours else []
    for refusal in integration.refusals(obj):
        if refusal not in before:
            raise not_countable(obj, integration, refusal)
    problems = integration.problems(obj) if obj.get("spec") != old.get("spec") else ()
    if problems and not integration.problems(old):
        raise not_countable(obj, integration, "; ".join(problems))


def _check_keeps_a_queue(
    obj: Object, old: Object, integration: Integration, context: NamespaceContext
) -> None:
    """Raise `RefusedError` for a job that names no queue any more where others get a default one."""
    if context.default_queue and not integration.classify and queue_of(old) and not queue_of(obj):
        field = f"metadata.labels[{names.QUEUE}]"
        problem = "queue-name must not be empty in namespace with default queue"
        raise not_countable(obj, integration, f"{field}: {problem}")


def _check_label(obj: Object, old: Object, integration: Integration) -> None:
    """Raise `RefusedError` for a change after which nobody would see the object any more."""
    gate = integration.gate
    if gate is None or labels_of(old).get(gate.label) != "true":
        return
    of = described(obj, integration)
    group = "" if integration.group is None else integration.group.label
    if labels_of(obj).get(group) != (given := labels_of(old).get(group)):
        raise RefusedError(WebhookRule.GROUPED_BY_LABEL, of=of, label=group, given=given)
    if labels_of(obj).get(gate.label) == "true" or integration.finish(old) is not None:
        return
    raise RefusedError(WebhookRule.COUNTED_BY_LABEL, of=of, label=gate.label)


def _check_group(obj: Object, old: Object, integration: Integration) -> None:
    """Raise `RefusedError` for a change of what an object that was let go says of its group.

    Its user may end the group: by saying that it is not retriable, and not the other way, as in Kueue
    (kubernetes-sigs/kueue@ff69552 pkg/controller/jobs/pod/pod_webhook.go).
    """
    spec, gate = integration.group, integration.gate
    if spec is None or gate is None or labels_of(old).get(gate.label) != "true":
        return
    if not labels_of(old).get(spec.label):
        return
    before, after = annotations_of(old), annotations_of(obj)
    fixed = () if integration.held(old) else (spec.total, spec.role, spec.early, spec.serving)
    changed = [key for key in fixed if key and before.get(key) != after.get(key)]
    retriable = spec.retriable or ""
    if before.get(retriable) == "false" and after.get(retriable) != "false":
        changed.append(retriable)
    if changed:
        of, given = described(obj, integration), before.get(changed[0], "")
        raise RefusedError(WebhookRule.GROUP_STAYS, of=of, annotation=changed[0], given=given)


def _check_controller(
    obj: Object, old: Object, integration: Integration, context: NamespaceContext
) -> None:
    """Raise `RefusedError` for a controller with which a pod would leave its group, or be left alone."""
    gate = integration.gate
    if gate is None or labels_of(old).get(gate.label) != "true":
        return
    before, after = (
        context.integrations.runs_with_controller(one, integration) for one in (old, obj)
    )
    leaves = not before and (after or not integration.matches(obj))
    if leaves and integration.finish(old) is None:
        of, controller = described(obj, integration), _controller(obj)
        raise RefusedError(WebhookRule.COUNTED_BY_ITSELF, of=of, controller=controller)


def _controller(obj: Object) -> str:
    owners = (one for one in owners_of(obj) if one.get("controller"))
    named = (f"{one.get('kind')} {one.get('name')}" for one in owners)
    return next(named, "")


def _uid(obj: Object) -> str:
    return str(map_at(obj, "metadata").get("uid") or "")


def _is_ours(old: Object, integration: Integration, context: NamespaceContext) -> bool:
    """Return whether the job waits by itself: not if it waits with its controller."""
    if names.USER_PENDING in annotations_of(old):
        return True
    if context.integrations.has_waiting_controller(old, integration.kind):
        return False
    if queue_of(old) or context.manage_without_queue:
        return True
    return integration.classify and names.QUEUE in labels_of(old)


def _ends(obj: Object, integration: Integration) -> bool:
    """Return whether the job was cancelled, so that nothing of it runs."""
    patch = integration.cancel(obj)
    return patch is not None and all(
        found(obj, tokens(o["path"])) == o.get("value") for o in patch if o["op"] != "test"
    )


def _is_let_out(
    obj: Object, old: Object, integration: Integration, context: NamespaceContext
) -> bool:
    """Return whether the change takes a job from the admitted controller whose quota it uses."""
    if integration.finish(old) is not None or not is_covered(old, integration, context):
        return False
    before, now = ([one for one in owners_of(each) if one.get("controller")] for each in (old, obj))
    fields = ("kind", "name", "uid")
    return [[one.get(f) for f in fields] for one in before] != [
        [one.get(f) for f in fields] for one in now
    ]


def _keeps_mark(obj: Object, old: Object) -> bool:
    """Return whether the change leaves a job recognizable as one that waits by itself."""
    if names.USER_PENDING in annotations_of(obj):
        return True
    if names.USER_PENDING in annotations_of(old):
        return False
    return controller_uid(obj) == controller_uid(old) and queue_of(obj) == queue_of(old)


def _has_our_mark(obj: Object) -> bool:
    return annotations_of(obj).get(names.USER_PENDING) == "false"


def _marked(obj: Object) -> MutationResult:
    draft = Draft(obj)
    draft.annotations[names.USER_PENDING] = "false"
    return draft.result()


def _held(obj: Object, integration: Integration) -> MutationResult:
    draft = Draft(obj)
    draft.annotations[names.USER_PENDING] = "false"
    draft.hold(integration)
    return draft.result()


def _not_admitted(old: Object, integration: Integration) -> RefusedError:
    paths = [o["path"] for o in integration.hold(old) if o["op"] != "test"]
    field = paths[0].strip("/").replace("/", ".") if paths else "spec"
    queue = queue_of(old)
    waits = f"it waits in LocalQueue {queue!r}" if queue else "it names no LocalQueue"
    of = described(old, integration)
    return RefusedError(WebhookRule.NOT_ADMITTED, of=of, field=field, waits=waits)
