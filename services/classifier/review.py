"""AdmissionReview `v1`: bytes in, bytes out. Pure but for what it is given.

https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson

from services.classifier.mutate import BAD_REQUEST, Mutated, RefusedError, mutate, no_trace
from services.classifier.rules import Rules
from shared.contracts.kinds import Kind, Object

__all__ = ["REVIEW_BYTES_MAX", "Outcome", "Reply", "answer_review"]

REVIEW_BYTES_MAX: Final = 3 * 1024 * 1024
"""What an API server takes in one request; etcd keeps half of that."""

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


def answer_review(
    body: bytes,
    rules: Rules,
    *,
    kind: Kind | None = None,
    new_traceparent: Callable[[], str | None] = no_trace,
    job_default_queue: str = "",
) -> Reply:
    """Answer one review. `kind`: the only one that is expected here, None for any.

    `new_traceparent` starts a trace: it is called once for an object that is held, and not at all
    in a dry run.
    """
    try:
        request = _request(body)
    except ValueError as error:
        return Reply(
            status=BAD_REQUEST,
            body=str(error).encode(),
            outcome=Outcome.MALFORMED,
            message=str(error),
        )
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
            job_default_queue=job_default_queue,
        )
    except RefusedError as error:
        return _denied(request, error.code, str(error))
    except RecursionError:
        return _denied(request, BAD_REQUEST, "object: nested too deeply")
    return _allowed(request, made)


def _request(body: bytes) -> Object:
    """Read the envelope. Raises `ValueError` in words for whoever calls us wrongly."""
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"body: not JSON: {error}") from error
    if not isinstance(review, dict):
        raise ValueError("body: must be an AdmissionReview object")  # noqa: TRY004
    if review.get("apiVersion") != _API_VERSION or review.get("kind") != "AdmissionReview":
        got = f"{review.get('apiVersion')} {review.get('kind')}"
        raise ValueError(f"body: must be {_API_VERSION} AdmissionReview, got {got}")
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
    return Reply(status=_HTTP_OK, body=_review(response), outcome=outcome, request=request)


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


def _review(response: dict[str, Any]) -> bytes:
    return orjson.dumps(
        {"apiVersion": _API_VERSION, "kind": "AdmissionReview", "response": response}
    )
