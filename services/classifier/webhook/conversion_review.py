"""Answers ConversionReview `v1`: bytes in, bytes out. Pure.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#webhook-request-and-response
"""

from dataclasses import replace
from typing import Any, Final

import orjson

from services.classifier.conversion.convert import ConversionError, convert
from services.classifier.conversion.lists import split
from services.classifier.refusal import RefusedError, WebhookRule
from services.classifier.webhook.review import (
    HTTP_OK,
    Outcome,
    Reply,
    failure_of,
    in_short,
    malformed_reply,
    parse_request,
    too_large_reply,
    uid_in,
)
from shared.contracts.kube.kinds import Object

CONVERSION_BYTES_MAX: Final = 128 * 1024 * 1024
"""A list request in another version arrives as one review: this is about 40,000 Workloads."""

_API_VERSION: Final = "apiextensions.k8s.io/v1"
_KIND: Final = "ConversionReview"
_LIST_ENDS: Final = b"]}}"
_PART_BYTES: Final = 1024 * 1024
"""Small parts take three times their bytes."""


def answer_conversion(body: bytes) -> Reply:
    """Convert the objects of one review."""
    reply, parts = convert_parts(body)
    return replace(reply, body=b"".join(parts))


def convert_parts(body: bytes) -> tuple[Reply, list[bytes]]:
    """Convert the objects of one review, one after the other.

    Returns the reply without its body, and the parts of that: joined, they would take its memory twice.
    """
    try:
        without_objects, spans = split(body)
        request = parse_request(without_objects, _API_VERSION, _KIND)
    except (ValueError, RecursionError) as error:
        reply = malformed_reply(ValueError(str(error)))
        return reply, [reply.body]
    begin = _answer(request, {"result": {"status": "Success"}, "convertedObjects": []})
    parts, last = list[bytes](), bytearray(begin.removesuffix(_LIST_ENDS))
    wanted = str(request.get("desiredAPIVersion"))
    try:
        for number, (first, end) in enumerate(spans):
            last += b"," if number else b""
            last += orjson.dumps(convert(orjson.loads(body[first:end]), wanted))
            if len(last) > _PART_BYTES:
                parts.append(bytes(last))
                last.clear()
    except (ConversionError, RecursionError, TypeError, ValueError) as error:
        # Of a TypeError: an object with more levels than can be written.
        reply = _failed(request, str(error), WebhookRule.CONVERSION)
        return reply, [reply.body]
    parts.append(bytes(last + _LIST_ENDS))
    return Reply(
        status=HTTP_OK, body=b"", outcome=Outcome.MUTATED, request={"uid": request["uid"]}
    ), parts


def refused_conversion(body: bytes, error: RefusedError) -> Reply:
    """Return the refusal of a review that is not read. Only its uid is looked for."""
    uid = uid_in(body)
    if uid is None:
        return too_large_reply(body, error)
    return _failed({"uid": uid}, str(error), error.rule)


def unreadable_conversion(body: bytes, error: Exception) -> Reply:
    """Return the refusal of a review on which our own code failed."""
    rule = WebhookRule.UNREADABLE
    values = {"of": "conversion of objects", "problem": in_short(error)}
    refused = refused_conversion(body, RefusedError(rule, **values))
    return replace(refused, failure=failure_of(error))


def _failed(request: Object, message: str, rule: WebhookRule) -> Reply:
    failed = {"result": {"status": "Failure", "message": message}}
    return Reply(
        status=HTTP_OK,
        body=_answer(request, failed),
        outcome=Outcome.FAILED if rule is WebhookRule.UNREADABLE else Outcome.REFUSED,
        message=message,
        cause=rule.label,
        request={"uid": request["uid"]},
    )


def _answer(request: Object, response: dict[str, Any]) -> bytes:
    answered = {"uid": request["uid"]} | response
    return orjson.dumps({"apiVersion": _API_VERSION, "kind": _KIND, "response": answered})
