"""AdmissionReview and ConversionReview `v1`: bytes in, bytes out. Pure but for what it is given.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#webhook-request-and-response
"""

import asyncio
import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson

from services.classifier.conversion.convert import GROUP, ConversionError, convert
from services.classifier.rules.rules import Rules
from services.classifier.validation import Problem, validate
from services.classifier.webhook.mutation import (
    BAD_REQUEST,
    Mutated,
    Place,
    RefusedError,
    anywhere,
    mutate,
    no_trace,
)
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kube.names import TRACEPARENT_ANNOTATION
from shared.contracts.kueue.definitions import STORAGE

__all__ = [
    "CONVERSION_BYTES_MAX",
    "OBJECT_BYTES_MAX",
    "REVIEW_BYTES_MAX",
    "Outcome",
    "Reply",
    "answer_conversion",
    "answer_review",
    "answer_validation",
]

OBJECT_BYTES_MAX: Final = 3 * 1024 * 1024
"""What an API server takes in one request; etcd keeps half of that."""

REVIEW_BYTES_MAX: Final = 2 * 6 * OBJECT_BYTES_MAX
"""An update shows the old object beside the new one, and an API server writes `<`, `>` and `&` with six
characters each. What is not read here can neither be created nor changed any more, whoever asks."""

CONVERSION_BYTES_MAX: Final = 128 * 1024 * 1024
"""A list that somebody reads in an older version comes as one request: some 40,000 Workloads."""

_CONVERTED_AT_A_TIME: Final = 50
"""Objects between two looks at what else there is to answer: some 10 ms."""

_UNPROCESSABLE: Final = 422
_CONVERSION_VERSION: Final = "apiextensions.k8s.io/v1"
_API_VERSION: Final = "admission.k8s.io/v1"
_REASONS: Final = {400: "BadRequest", 500: "InternalError"}
_HTTP_OK: Final = 200


class Outcome(StrEnum):
    """What became of a request, for logs and metrics."""

    MUTATED = "mutated"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    FAILED = "failed"
    """An expression failed: the configuration may be at fault."""

    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What goes back over HTTP."""

    status: int
    """Of HTTP: an object that is refused is still 200; 400 means that this is no review."""

    body: bytes
    outcome: Outcome
    message: str = ""
    """Why not, if not."""

    request: Object | None = None
    """The request, to log whose it was; None if it could not be read."""

    traceparent: str | None = None
    """Of the object as it will be created, if it was changed and that is meant."""


def answer_review(
    body: bytes,
    rules: Rules,
    *,
    kind: Kind | None = None,
    new_traceparent: Callable[[], str | None] = no_trace,
    place_of: Callable[[str], Place] = anywhere,
) -> Reply:
    """Answer one review. `kind`: the only one that is expected here, None for any.

    `new_traceparent` starts a trace: it is called once for an object that is held, and not at all
    in a dry run. `place_of` says what holds in a namespace.
    """
    try:
        request = _request(body)
    except ValueError as error:
        return _malformed(error)
    if request.get("operation", "CREATE") != "CREATE" or request.get("subResource"):
        return _allowed(request, Mutated(object={}, patch=()))
    try:
        given = _object(request, kind)
        namespace = str(request.get("namespace") or "")
        made = mutate(
            given,
            rules,
            namespace=namespace,
            new_traceparent=no_trace if request.get("dryRun") else new_traceparent,
            place=place_of(namespace),
        )
    except RefusedError as error:
        return _denied(request, error.code, str(error))
    except RecursionError:
        return _denied(request, BAD_REQUEST, "object: nested too deeply")
    return _allowed(request, made)


def answer_validation(body: bytes) -> Reply:
    """Answer one review by the rules of the object's kind; a kind without rules is allowed."""
    try:
        request = _request(body)
    except ValueError as error:
        return _malformed(error)
    unchanged = Mutated(object={}, patch=())
    if request.get("operation") not in {"CREATE", "UPDATE"}:
        return _allowed(request, unchanged)
    try:
        obj = _newest(_object(request, None))
        old = request.get("oldObject")
        problems = validate(obj, _newest(old) if isinstance(old, dict) else None)
    except (RefusedError, ConversionError) as error:
        return _denied(request, BAD_REQUEST, str(error))
    except RecursionError:
        return _denied(request, BAD_REQUEST, "object: nested too deeply")
    return _invalid(request, obj, problems) if problems else _allowed(request, unchanged)


def _newest(obj: Object) -> Object:
    """Rules are about the storage version: what is wrong is said in its words."""
    group, _, version = str(obj.get("apiVersion")).rpartition("/")
    ours = group == GROUP and version != STORAGE
    return convert(obj, f"{GROUP}/{STORAGE}") if ours else obj


async def answer_conversion(body: bytes) -> Reply:
    """Convert the objects of one review, and let other requests in between."""
    try:
        request = _request(body, _CONVERSION_VERSION, "ConversionReview")
    except ValueError as error:
        return _malformed(error)
    objects = request.get("objects")
    converted: list[Object] = []
    try:
        for number, obj in enumerate(objects if isinstance(objects, list) else (), start=1):
            converted.append(convert(obj, str(request.get("desiredAPIVersion"))))
            if number % _CONVERTED_AT_A_TIME == 0:
                await asyncio.sleep(0)
    except (ConversionError, RecursionError) as error:
        message = str(error)
        result = {"status": "Failure", "message": message}
        response: dict[str, Any] = {"uid": request["uid"], "result": result}
        outcome = Outcome.REFUSED
    else:
        message, outcome = "", Outcome.MUTATED
        response = {
            "uid": request["uid"],
            "result": {"status": "Success"},
            "convertedObjects": converted,
        }
    review = {
        "apiVersion": _CONVERSION_VERSION,
        "kind": "ConversionReview",
        "response": response,
    }
    return Reply(
        status=_HTTP_OK,
        body=orjson.dumps(review),
        outcome=outcome,
        message=message,
        request={"uid": request["uid"]},
    )


def _malformed(error: ValueError) -> Reply:
    return Reply(
        status=BAD_REQUEST,
        body=str(error).encode(),
        outcome=Outcome.MALFORMED,
        message=str(error),
    )


def _request(body: bytes, api_version: str = _API_VERSION, kind: str = "AdmissionReview") -> Object:
    """Read the envelope. Raises `ValueError` in words for whoever calls us wrongly."""
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"body: not JSON: {error}") from error
    if not isinstance(review, dict):
        article = "an" if kind == "AdmissionReview" else "a"
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
    return request


def _object(request: Object, kind: Kind | None) -> Object:
    given = request.get("object")
    if not isinstance(given, dict):
        raise RefusedError(BAD_REQUEST, "request.object: must be an object")
    if kind is not None and given.get("kind") != kind.kind:
        raise RefusedError(
            BAD_REQUEST, f"expected a {kind.kind} object but got {given.get('kind')!r}"
        )
    return given


def _allowed(request: Object, made: Mutated) -> Reply:
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    if made.patch:
        # A patch type without a patch is refused by the API server.
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(orjson.dumps(made.patch)).decode()
    outcome = Outcome.MUTATED if made.patch else Outcome.UNCHANGED
    traceparent = None
    if made.patch and not request.get("dryRun"):
        annotations = made.object["metadata"].get("annotations") or {}
        traceparent = annotations.get(TRACEPARENT_ANNOTATION)
    return Reply(
        status=_HTTP_OK,
        body=_review(response),
        outcome=outcome,
        request=request,
        traceparent=traceparent,
    )


def _denied(request: Object, code: int, problem: str) -> Reply:
    outcome = Outcome.REFUSED if code == BAD_REQUEST else Outcome.FAILED
    message = problem if code == BAD_REQUEST else f"Internal error occurred: {problem}"
    status = {
        "status": "Failure",
        "code": code,
        "reason": _REASONS.get(code, ""),
        "message": message,
    }
    response = {"uid": request["uid"], "allowed": False, "status": status}
    return Reply(
        status=_HTTP_OK,
        body=_review(response),
        outcome=outcome,
        message=message,
        request=request,
    )


def _invalid(request: Object, obj: Object, problems: Sequence[Problem]) -> Reply:
    """As an API server refuses an object of its own kinds: one sentence, and a cause per problem."""
    kind = str(obj.get("kind"))
    group = str(obj.get("apiVersion")).rpartition("/")[0]
    metadata = obj.get("metadata")
    name = str(request.get("name") or (metadata or {}).get("name") or "")
    listed = ", ".join(map(str, problems))
    several = f"[{listed}]" if len(problems) > 1 else listed
    message = f'{kind}.{group} "{name}" is invalid: {several}'
    status = {
        "status": "Failure",
        "code": _UNPROCESSABLE,
        "reason": "Invalid",
        "message": message,
        "details": {
            "name": name,
            "group": group,
            "kind": kind,
            "causes": [problem.cause for problem in problems],
        },
    }
    return Reply(
        status=_HTTP_OK,
        body=_review({"uid": request["uid"], "allowed": False, "status": status}),
        outcome=Outcome.REFUSED,
        message=message,
        request=request,
    )


def _review(response: dict[str, Any]) -> bytes:
    return orjson.dumps(
        {"apiVersion": _API_VERSION, "kind": "AdmissionReview", "response": response}
    )
