"""Answers AdmissionReview `v1`: bytes in, bytes out. Pure, except for the callables it is given.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

import base64
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

import orjson

from services.classifier.refusal import (
    BAD_REQUEST,
    FORBIDDEN,
    INTERNAL_ERROR,
    TOO_LARGE,
    TOO_MANY,
    RefusedError,
    WebhookRule,
)
from services.classifier.rules import Rules
from services.classifier.run_requests import check_fixed, check_requests
from services.classifier.validation import Verdict, judge
from services.classifier.webhook.context import NamespaceContext, default_context
from services.classifier.webhook.mutation import (
    Evaluate,
    MutationResult,
    evaluate_here,
    integration_of,
    mutate,
    no_traceparent,
)
from services.classifier.webhook.updates import review_update
from shared.contracts.kube.bodies import map_at
from shared.contracts.kube.kinds import LOCAL_QUEUE, Kind, Object
from shared.contracts.kube.names import ORIGIN, TRACEPARENT_ANNOTATION
from shared.telemetry.traceparent import parse_traceparent

OBJECT_BYTES_MAX: Final = 3 * 1024 * 1024
"""The largest request that an API server accepts; etcd accepts half of that."""

REVIEW_BYTES_MAX: Final = 2 * 6 * OBJECT_BYTES_MAX
"""An update carries the old and the new object, and an API server escapes `<`, `>` and `&` as six
characters each. An object above this limit can be neither created nor changed, by anybody."""

_UNBALANCED_BYTES_MAX: Final = 64 * 1024
"""Of a body up to this size in which brackets only open, orjson says that memory is short. It is no JSON."""

HTTP_OK: Final = 200
_UNPROCESSABLE: Final = 422
_API_VERSION: Final = "admission.k8s.io/v1"
_KIND: Final = "AdmissionReview"
_REASONS: Final = {
    BAD_REQUEST: "BadRequest",
    FORBIDDEN: "Forbidden",
    TOO_LARGE: "RequestEntityTooLarge",
    TOO_MANY: "TooManyRequests",
    INTERNAL_ERROR: "InternalError",
}
_UID: Final = re.compile(rb'"request":\s*\{\s*"uid":\s*"([-0-9A-Za-z]{1,64})"')
_NAMESPACE: Final = re.compile(rb'"namespace":\s*"([-.0-9a-z]{1,253})"')
UID_WITHIN_BYTES: Final = 1024
NAMESPACE_WITHIN_BYTES: Final = 4096
"""An API server writes the uid first, and the namespace before the object."""

_ERROR_CHARS: Final = 200
_NAME_CHARS: Final = 253

_TEXTS: Final = ("operation", "subResource", "namespace", "name")
"""Fields of a request that are strings."""

Check = Callable[[Object, Object | None], Verdict]
_UNCHANGED: Final = MutationResult(object={}, patch=())


class Outcome(StrEnum):
    """The result of a request, for logs and metrics."""

    MUTATED = "mutated"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    FAILED = "failed"
    """An expression failed: the configuration may be at fault."""

    MALFORMED = "malformed"


class Failure(NamedTuple):
    """Our own code failed on an object."""

    place: str
    """Kind of the error, file and line: the same for each object on which it fails so."""

    trace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The HTTP answer to a review."""

    status: int
    """HTTP status: 200 also for a refused object, 400 for a body that is no review."""

    body: bytes
    outcome: Outcome
    message: str = ""
    """Why the request was refused; empty if it was allowed."""

    cause: str = ""
    """The rule by which it was refused, for metrics; empty if it was allowed, or is no review."""

    request: Object | None = None
    """The request, for logs; None if it could not be read."""

    traceparent: str | None = None
    """Trace context of the object, if the review mutated it and was no dry run."""

    about: tuple[str, str | None] = ("", None)
    """For logs: the workload that was refused (``<namespace>/<name>``), and its trace context."""

    failure: Failure | None = None


def answer_mutation(
    review: bytes | Object,
    rules: Rules,
    *,
    kind: Kind | None = None,
    new_traceparent: Callable[[], str | None] = no_traceparent,
    context_of: Callable[[str], NamespaceContext] = default_context,
    evaluation: Evaluate = evaluate_here,
) -> Reply:
    """Answer one review of a creation or change. `kind`: the only one expected, None for any.

    `review` is a body, or the request that was read from it. `new_traceparent` starts a trace: once for an
    object that is held, never in a dry run. `context_of` returns the policies and defaults of a namespace.
    `evaluation` evaluates expressions.
    """
    try:
        request = parse_review(review) if isinstance(review, bytes) else review
    except ValueError as error:
        return malformed_reply(error)
    operation = request.get("operation", "CREATE")
    if operation not in {"CREATE", "UPDATE"} or request.get("subResource"):
        return _allowed(request, _UNCHANGED)
    try:
        obj = _object_of(request, kind)
        namespace = str(request.get("namespace") or "")
        if operation == "UPDATE":
            return _allowed(request, _review_update(request, obj, context_of(namespace)))
        result = mutate(
            obj,
            rules,
            namespace=namespace,
            new_traceparent=no_traceparent if request.get("dryRun") else new_traceparent,
            context=context_of(namespace),
            evaluation=evaluation,
        )
        if (integration := integration_of(obj, context_of(namespace).integrations)) is not None:
            check_requests(obj, result.object, integration)
    except RefusedError as error:
        return refused_reply(request, error)
    except RecursionError:
        return refused_reply(request, RefusedError(WebhookRule.TOO_DEEP))
    return _allowed(request, result)


def _review_update(request: Object, obj: Object, context: NamespaceContext) -> MutationResult:
    old, user = request.get("oldObject"), request.get("userInfo")
    integration = integration_of(obj, context.integrations)
    if integration is None or not isinstance(old, dict):
        return MutationResult(object=obj, patch=())
    user = user if isinstance(user, dict) else {}
    name = str(user.get("username") or "")
    result = review_update(obj, old, integration, user=name, context=context)
    groups = user.get("groups")
    users = frozenset((name, *map(str, groups if isinstance(groups, list) else ())))
    if context.managed:
        exempt = context.patchers | context.request_editors
        check_fixed(obj, old, integration, users=users, exempt=exempt)
    return result


def answer_validation(review: bytes | Object, check: Check = judge) -> Reply:
    """Answer one review by the rules of the object's kind; a kind without rules is allowed.

    `review` is a body, or the request that was read from it. `check` applies the rules.
    """
    try:
        request = parse_review(review) if isinstance(review, bytes) else review
    except ValueError as error:
        return malformed_reply(error)
    if request.get("operation") not in {"CREATE", "UPDATE"}:
        return _allowed(request, _UNCHANGED)
    try:
        obj, old = _object_of(request, None), request.get("oldObject")
        verdict = check(obj, old if isinstance(old, dict) else None)
    except RefusedError as error:
        return refused_reply(request, error)
    except RecursionError:
        return refused_reply(request, RefusedError(WebhookRule.TOO_DEEP))
    return _invalid(request, obj, verdict) if verdict.problems else _allowed(request, _UNCHANGED)


def malformed_reply(error: ValueError) -> Reply:
    """Return the answer to a body that is no review: HTTP status 400, and why."""
    return Reply(
        status=BAD_REQUEST,
        body=str(error).encode(),
        outcome=Outcome.MALFORMED,
        message=str(error),
    )


def too_large_reply(body: bytes, error: RefusedError) -> Reply:
    """Return the refusal of a body that is not parsed. The request's uid and namespace are looked for."""
    uid = uid_in(body)
    if uid is None:
        return Reply(
            status=TOO_LARGE,
            body=str(error).encode(),
            outcome=Outcome.MALFORMED,
            message=str(error),
            cause=error.cause,
        )
    return refused_reply({"uid": uid, "namespace": namespace_in(body)}, error)


def uid_in(body: bytes) -> str | None:
    """Return the uid of a request that is not parsed; None if there is none."""
    found = _UID.search(body, 0, UID_WITHIN_BYTES)
    return None if found is None else found[1].decode()


def namespace_in(body: bytes) -> str:
    """Return the namespace of a review that is not parsed; empty if there is none."""
    found = _NAMESPACE.search(body, 0, NAMESPACE_WITHIN_BYTES)
    return "" if found is None else found[1].decode()


def unreadable_reply(body: bytes, error: Exception) -> Reply:
    """Return the refusal of an object on which our own code failed. The webhook serves on."""
    try:
        request = parse_review(body)
    except (ValueError, RecursionError) as unread:
        return malformed_reply(ValueError(str(unread)))
    rule = WebhookRule.UNREADABLE
    refusal = RefusedError(rule, of=_named(request), problem=in_short(error))
    return replace(refused_reply(request, refusal), failure=failure_of(error))


def failure_of(error: Exception) -> Failure:
    """Return where our own code failed."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    named = f"{type(error).__name__} {place.filename}:{place.lineno}"
    return Failure(named, "".join(traceback.format_exception(error)))


def in_short(error: Exception) -> str:
    """Return the kind of an error, and the beginning of its text."""
    return f"{type(error).__name__}: {error}"[:_ERROR_CHARS]


def _named(request: Object) -> str:
    obj = request.get("object")
    kind = obj.get("kind") if isinstance(obj, dict) else None
    metadata = map_at(obj, "metadata")
    name = request.get("name") or metadata.get("name") or metadata.get("generateName") or ""
    return f"{str(kind)[:_NAME_CHARS]} {request.get('namespace') or ''}/{str(name)[:_NAME_CHARS]}"


def _workload_of(request: Object) -> tuple[str, str | None]:
    """Return whom a request is about: ``<namespace>/<name>``, and its trace context.

    Empty for what is no workload. A job that is new has no trace: what its manifest says may be copied from
    another one. A spoke's copy continues the original's.
    """
    obj, old = request.get("object"), request.get("oldObject")
    metadata, namespace = map_at(obj, "metadata"), request.get("namespace")
    name = request.get("name") or metadata.get("name") or metadata.get("generateName")
    if not namespace or not name or map_at(obj).get("kind") == LOCAL_QUEUE.kind:
        return "", None
    there = old if isinstance(old, dict) or ORIGIN not in map_at(metadata, "labels") else obj
    trace = map_at(there, "metadata", "annotations").get(TRACEPARENT_ANNOTATION)
    is_trace = isinstance(trace, str) and parse_traceparent(trace) is not None
    return f"{namespace}/{str(name)[:_NAME_CHARS]}", trace if is_trace else None


def allowed_reply(request: Object) -> Reply:
    """Return the answer that allows the request and changes nothing."""
    return _allowed(request, _UNCHANGED)


def refused_reply(request: Object, error: RefusedError) -> Reply:
    """Return the answer that refuses the request."""
    return replace(_denied(request, error.code, str(error)), cause=error.cause)


def parse_review(body: bytes) -> Object:
    """Return the `request` of an AdmissionReview. Raises `ValueError`."""
    return parse_request(body, _API_VERSION, _KIND)


def parse_request(body: bytes, api_version: str, kind: str) -> Object:
    """Return the `request` of a review. Raises `ValueError` that names field, value and rule."""
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if "memory" in str(error) and len(body) > _UNBALANCED_BYTES_MAX:
            raise MemoryError from error  # It is JSON, and this process may hold no more.
        raise ValueError(f"body: not JSON: {error}") from error
    if not isinstance(review, dict):
        article = "an" if kind == _KIND else "a"
        raise ValueError(f"body: must be {article} {kind} object")  # noqa: TRY004
    if review.get("apiVersion") != api_version or review.get("kind") != kind:
        got = f"{review.get('apiVersion')} {review.get('kind')}"
        raise ValueError(f"body: must be {api_version} {kind}, got {got}")
    request = review.get("request")
    if not isinstance(request, dict):
        raise ValueError("request: must be an object")  # noqa: TRY004
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise ValueError(f"request.uid: must be a string, got {uid!r}")
    for field in _TEXTS:
        if (value := request.get(field)) is not None and not isinstance(value, str):
            raise ValueError(f"request.{field}: must be a string, got {str(value)[:40]!r}")
    return request


def _object_of(request: Object, kind: Kind | None) -> Object:
    obj = request.get("object")
    if not isinstance(obj, dict):
        raise RefusedError(WebhookRule.NO_OBJECT)
    if kind is not None and obj.get("kind") != kind.kind:
        raise RefusedError(WebhookRule.OTHER_KIND, wanted=kind.kind, given=obj.get("kind"))
    return obj


def _allowed(request: Object, result: MutationResult) -> Reply:
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    if result.patch:
        # An API server refuses a patch type without a patch.
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(result.patch)).decode()
    traceparent = None
    if result.patch and not request.get("dryRun"):
        annotations = result.object["metadata"].get("annotations") or {}
        traceparent = annotations.get(TRACEPARENT_ANNOTATION)
    return Reply(
        status=HTTP_OK,
        body=_review(response),
        outcome=Outcome.MUTATED if result.patch else Outcome.UNCHANGED,
        request=request,
        traceparent=traceparent,
    )


def _denied(request: Object, code: int, problem: str) -> Reply:
    bad_request = code != INTERNAL_ERROR
    message = problem if bad_request else f"Internal error occurred: {problem}"
    status = {"code": code, "reason": _REASONS.get(code, ""), "message": message}
    outcome = Outcome.REFUSED if bad_request else Outcome.FAILED
    return _failure(request, outcome, status)


def _invalid(request: Object, obj: Object, verdict: Verdict) -> Reply:
    """Refuse as an API server refuses its own kinds: one sentence, and a cause for each problem.

    The code is that of Kueue: 422 for what its definitions refuse, 403 for what its webhook refuses.
    """
    kind = str(obj.get("kind"))
    group = str(obj.get("apiVersion")).rpartition("/")[0]
    metadata = obj.get("metadata")
    given = metadata.get("name") if isinstance(metadata, dict) else None
    name = str(request.get("name") or given or "")
    listed = ", ".join(map(str, verdict.problems))
    several = f"[{listed}]" if len(verdict.problems) > 1 else listed
    rule = WebhookRule.RULES_OF_KIND
    status = {
        "code": _UNPROCESSABLE if verdict.breaks_definition else FORBIDDEN,
        "reason": "Invalid" if verdict.breaks_definition else _REASONS[FORBIDDEN],
        "message": rule.says(kind=kind, group=group, name=name, problems=several),
        "details": {
            "name": name,
            "group": group,
            "kind": kind,
            "causes": [problem.cause for problem in verdict.problems],
        },
    }
    return replace(_failure(request, Outcome.REFUSED, status), cause=rule.label)


def _failure(request: Object, outcome: Outcome, status: dict[str, Any]) -> Reply:
    response = {"uid": request["uid"], "allowed": False, "status": {"status": "Failure"} | status}
    return Reply(
        status=HTTP_OK,
        body=_review(response),
        outcome=outcome,
        message=status["message"],
        request=request,
        about=_workload_of(request),
    )


def _review(response: dict[str, Any]) -> bytes:
    return orjson.dumps({"apiVersion": _API_VERSION, "kind": _KIND, "response": response})
