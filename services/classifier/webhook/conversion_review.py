"""Answers ConversionReview `v1`: bytes in, bytes out.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#webhook-request-and-response
"""

import asyncio
from typing import Any, Final

import orjson

from services.classifier.conversion.convert import ConversionError, convert
from services.classifier.refusal import WebhookRule
from services.classifier.webhook.review import (
    HTTP_OK,
    Outcome,
    Reply,
    in_short,
    malformed_reply,
    parse_request,
)
from shared.contracts.kube.kinds import Object

CONVERSION_BYTES_MAX: Final = 128 * 1024 * 1024
"""A list request in another version arrives as one review: this is about 40,000 Workloads."""

_BATCH_SIZE: Final = 50
"""Objects to convert, about 10 ms, before other requests get their turn."""

_API_VERSION: Final = "apiextensions.k8s.io/v1"
_KIND: Final = "ConversionReview"


async def answer_conversion(body: bytes) -> Reply:
    """Convert the objects of one review. Other requests run in between."""
    try:
        request = parse_request(body, _API_VERSION, _KIND)
    except ValueError as error:
        return malformed_reply(error)
    objects = request.get("objects")
    converted: list[Object] = []
    try:
        for number, obj in enumerate(objects if isinstance(objects, list) else (), start=1):
            converted.append(convert(obj, str(request.get("desiredAPIVersion"))))
            if number % _BATCH_SIZE == 0:
                await asyncio.sleep(0)
        answer = _answer(request, {"result": {"status": "Success"}, "convertedObjects": converted})
    except (ConversionError, RecursionError, TypeError) as error:
        # Of a TypeError: an object with more levels than can be written.
        message, outcome = str(error), Outcome.REFUSED
        answer = _answer(request, {"result": {"status": "Failure", "message": message}})
    else:
        message, outcome = "", Outcome.MUTATED
    return Reply(
        status=HTTP_OK,
        body=answer,
        outcome=outcome,
        message=message,
        cause=WebhookRule.CONVERSION.label if message else "",
        request={"uid": request["uid"]},
    )


def unreadable_conversion(body: bytes, error: Exception) -> Reply:
    """Return the refusal of a review on which our own code failed."""
    try:
        request = parse_request(body, _API_VERSION, _KIND)
    except (ValueError, RecursionError) as unread:
        return malformed_reply(ValueError(str(unread)))
    rule = WebhookRule.UNREADABLE
    message = rule.says(of="conversion of objects", problem=in_short(error))
    return Reply(
        status=HTTP_OK,
        body=_answer(request, {"result": {"status": "Failure", "message": message}}),
        outcome=Outcome.FAILED,
        message=message,
        cause=rule.label,
        request={"uid": request["uid"]},
    )


def _answer(request: Object, response: dict[str, Any]) -> bytes:
    answered = {"uid": request["uid"]} | response
    return orjson.dumps({"apiVersion": _API_VERSION, "kind": _KIND, "response": answered})
