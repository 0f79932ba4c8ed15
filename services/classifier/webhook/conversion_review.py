"""Answers ConversionReview `v1`: bytes in, bytes out.

https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#webhook-request-and-response
"""

import asyncio
from typing import Any, Final

import orjson

from services.classifier.conversion.convert import ConversionError, convert
from services.classifier.webhook.review import (
    HTTP_OK,
    Outcome,
    Reply,
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
    response: dict[str, Any]
    try:
        for number, obj in enumerate(objects if isinstance(objects, list) else (), start=1):
            converted.append(convert(obj, str(request.get("desiredAPIVersion"))))
            if number % _BATCH_SIZE == 0:
                await asyncio.sleep(0)
    except (ConversionError, RecursionError) as error:
        message, outcome = str(error), Outcome.REFUSED
        response = {"result": {"status": "Failure", "message": message}}
    else:
        message, outcome = "", Outcome.MUTATED
        response = {"result": {"status": "Success"}, "convertedObjects": converted}
    uid = {"uid": request["uid"]}
    review = {"apiVersion": _API_VERSION, "kind": _KIND, "response": uid | response}
    return Reply(
        status=HTTP_OK,
        body=orjson.dumps(review),
        outcome=outcome,
        message=message,
        request=uid,
    )
