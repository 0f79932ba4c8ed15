"""Webhooks that deny a request or cannot be called."""

from dataclasses import dataclass, field

import pytest

from services.simulator.cluster.api import Api
from services.simulator.cluster.errors import ApiError
from services.simulator.cluster.kinds.registry import Obj
from tests.unit.simulator.builders import kind
from tests.unit.simulator.webhooks import Reviewer, configure, create, hook


@dataclass(frozen=True, kw_only=True)
class Denial:
    status: Obj | None
    code: int
    reason: str
    message: str


DENIALS = {
    "a denial with a sentence": Denial(
        status={"message": "no", "code": 400, "reason": "BadRequest"},
        code=400,
        reason="BadRequest",
        message='admission webhook "m.example.com" denied the request: no',
    ),
    "a denial with a code of its own": Denial(
        status={"message": "broken", "code": 500},
        code=500,
        reason="",
        message='admission webhook "m.example.com" denied the request: broken',
    ),
    "a denial without a word": Denial(
        status=None,
        code=403,
        reason="Forbidden",
        message='admission webhook "m.example.com" denied the request without explanation',
    ),
}


@pytest.mark.parametrize("case", DENIALS.values(), ids=DENIALS.keys())
@pytest.mark.parametrize("mutating", [True, False], ids=["mutating", "validating"])
async def test_denial_of_a_webhook_reaches_the_client(
    cluster: Api, reviewer: Reviewer, case: Denial, mutating: bool
) -> None:
    await configure(cluster, hook(reviewer, failurePolicy="Ignore"), mutating=mutating)
    reviewer.response = {"allowed": False} | ({"status": case.status} if case.status else {})

    with pytest.raises(ApiError) as refused:
        await create(cluster)

    assert (refused.value.code, refused.value.reason) == (case.code, case.reason)
    assert refused.value.message == case.message
    assert cluster.store.count(kind(cluster, "configmaps")) == 0


@dataclass(frozen=True, kw_only=True)
class Fault:
    raw: bytes | None = None
    delay_seconds: float = 0
    client: Obj = field(default_factory=dict)


FAULTS = {
    "is unreachable": Fault(client={"url": "https://127.0.0.1:1/x"}),
    "its certificate is not trusted": Fault(client={"caBundle": ""}),
    "its service is not known": Fault(
        client={"url": None, "service": {"namespace": "x", "name": "y"}}
    ),
    "is too slow": Fault(delay_seconds=5),
    "answers with no JSON": Fault(raw=b"{"),
    "answers with no AdmissionReview": Fault(raw=b"[]"),
    "it answers another request": Fault(raw=b'{"response":{"uid":"x","allowed":true}}'),
}


@pytest.mark.parametrize("case", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_failed_webhook_call_follows_the_failure_policy(
    cluster: Api, reviewer: Reviewer, case: Fault, policy: str
) -> None:
    broken = hook(reviewer, failurePolicy=policy, timeoutSeconds=1)
    broken["clientConfig"] |= case.client
    await configure(cluster, broken)
    reviewer.raw, reviewer.delay_seconds = case.raw, case.delay_seconds

    if policy == "Ignore":
        assert await create(cluster)
        return
    with pytest.raises(ApiError) as refused:
        await create(cluster)
    assert (refused.value.code, refused.value.reason) == (500, "InternalError")
    said = 'Internal error occurred: failed calling webhook "m.example.com": '
    assert refused.value.message.startswith(said)


async def test_webhook_service_is_called_at_the_configured_address(
    cluster: Api, reviewer: Reviewer
) -> None:
    by_service = hook(reviewer)
    service = {"namespace": "sluice", "name": "hook", "path": "/mutate"}
    by_service["clientConfig"] |= {"url": None, "service": service}
    await configure(cluster, by_service)

    await create(cluster)

    assert reviewer.paths == ["/mutate"]
