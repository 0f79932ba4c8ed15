"""What each answer of an API server means to who asked."""

from dataclasses import dataclass, field

import orjson
import pytest

from shared.kube.answers import decoded, encoded, error_from
from shared.kube.port import (
    AlreadyExistsError,
    ConflictError,
    ExpiredError,
    KubeError,
    NotFoundError,
    RefusedError,
    ThrottledError,
    UnavailableError,
)

INAPPLICABLE = "the server rejected our request due to an error in our request"


@dataclass(frozen=True, kw_only=True)
class Case:
    status: int
    means: type[KubeError]
    body: object = field(default_factory=dict)
    tests: bool = False


CASES = {
    "a missing object": Case(status=404, means=NotFoundError, body={"reason": "NotFound"}),
    "an unserved path, as plain text": Case(
        status=404, means=NotFoundError, body="404 page not found"
    ),
    "a name that is taken": Case(
        status=409, means=AlreadyExistsError, body={"reason": "AlreadyExists"}
    ),
    "a change in between": Case(status=409, means=ConflictError, body={"reason": "Conflict"}),
    "a forgotten version": Case(status=410, means=ExpiredError, body={"reason": "Expired"}),
    "a JSON patch with a test that could not be applied": Case(
        status=422,
        means=ConflictError,
        body={"reason": "Invalid", "message": INAPPLICABLE},
        tests=True,
    ),
    "a JSON patch without a test that could not be applied": Case(
        status=422, means=RefusedError, body={"reason": "Invalid", "message": INAPPLICABLE}
    ),
    "a JSON patch with a test whose result is invalid": Case(
        status=422,
        means=RefusedError,
        body={"reason": "Invalid", "message": 'Job "a" is invalid: spec.x: Required value'},
        tests=True,
    ),
    "a merge patch for another life of the object": Case(
        status=422,
        means=ConflictError,
        body={
            "reason": "Invalid",
            "message": "ConfigMap is invalid",
            "details": {"causes": [{"field": "metadata.uid", "message": "field is immutable"}]},
        },
    ),
    "an invalid object": Case(status=422, means=RefusedError, body={"reason": "Invalid"}),
    "nonsense": Case(status=400, means=RefusedError),
    "unauthenticated": Case(status=401, means=RefusedError),
    "forbidden": Case(status=403, means=RefusedError),
    "an unsupported content type": Case(status=415, means=RefusedError),
    "too much": Case(status=413, means=RefusedError),
    "a request that came too slowly": Case(status=408, means=UnavailableError),
    "a redirect, which no API server sends": Case(status=302, means=UnavailableError, body="<a/>"),
    "a webhook that fails": Case(
        status=500, means=UnavailableError, body={"reason": "InternalError"}
    ),
    "more than etcd takes": Case(
        status=500, means=RefusedError, body={"message": "etcdserver: request is too large"}
    ),
    "more than the client of etcd sends": Case(
        status=500,
        means=RefusedError,
        body={
            "message": "rpc error: code = ResourceExhausted desc = "
            "trying to send message larger than max (2261030 vs. 2097152)"
        },
    ),
    "a proxy without an upstream": Case(status=502, means=UnavailableError, body="<html/>"),
    "an API server that stops": Case(status=503, means=UnavailableError, body="stopping"),
    "a body that is a list": Case(status=500, means=UnavailableError, body=[1]),
    "details that are none": Case(status=422, means=RefusedError, body={"details": "none"}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_response_maps_to_the_error_the_caller_can_handle(case: Case) -> None:
    body = case.body.encode() if isinstance(case.body, str) else orjson.dumps(case.body)
    error = error_from(case.status, body, {}, what="GET /x", tests=case.tests)
    assert type(error) is case.means
    assert error.status == case.status
    assert "GET /x" in str(error)


PATIENCE = {
    "with a Retry-After header": ({"Retry-After": "7"}, {}, 7.0),
    "only the details say how long": ({}, {"details": {"retryAfterSeconds": 3}}, 3.0),
    "without a delay": ({}, {}, 1.0),
    "the header is a date": ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, {}, 1.0),
    "the header is negative": ({"Retry-After": "-1"}, {}, 1.0),
    "the header is endless": ({"Retry-After": "inf"}, {}, 1.0),
    "the header is no number": ({"Retry-After": "nan"}, {}, 1.0),
}


@pytest.mark.parametrize(("headers", "body", "seconds"), PATIENCE.values(), ids=PATIENCE.keys())
def test_throttled_response_gives_the_time_to_wait(
    headers: dict[str, str], body: dict[str, object], seconds: float
) -> None:
    error = error_from(429, orjson.dumps(body), headers, what="POST /x")
    assert isinstance(error, ThrottledError)
    assert error.retry_after_seconds == seconds


def test_error_message_is_truncated() -> None:
    body = orjson.dumps({"message": "secret " * (1 << 18)})
    assert len(str(error_from(422, body, {}, what="PATCH /x"))) <= 1024


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'"x"', b"null", b'{"a": 1'])
def test_response_that_is_no_object_is_an_outage(body: bytes) -> None:
    with pytest.raises(UnavailableError):
        decoded(body, "GET /x")


def test_numbers_beyond_64_bits_are_sent_unchanged() -> None:
    assert encoded({"a": 1 << 70}) == b'{"a": 1180591620717411303424}'


def test_value_that_is_not_json_is_refused_before_sending() -> None:
    with pytest.raises(RefusedError):
        encoded({"a": object()})
