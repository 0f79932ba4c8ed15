"""Admission webhooks, called for real over HTTPS."""

import asyncio
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

import orjson
import pytest
import trustme
from aiohttp import web

from services.simulator.behaviour.tekton.admission import TektonAdmission
from services.simulator.cluster.api import Api, DeleteOptions
from services.simulator.cluster.errors import ApiError
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.http.webhooks import Webhooks
from tests.unit.simulator.builders import api, config_map, kind, pipeline_run

GROUP = "admissionregistration.k8s.io"


@cache
def authority() -> trustme.CA:
    """One for all tests: making one takes a while."""
    return trustme.CA()


class Reviewer:
    """A webhook server that remembers what it was asked, and answers what the test says."""

    def __init__(self) -> None:
        self.asked: list[Obj] = []
        self.patches: dict[str, Any] = {}
        self.response: Obj = {"allowed": True}
        self.raw: bytes | None = None
        self.delay_seconds = 0.0
        self.authority = authority()
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        review = orjson.loads(await request.read())
        self.asked.append({**review["request"], "path": request.path})
        await asyncio.sleep(self.delay_seconds)
        if self.raw is not None:
            return web.Response(body=self.raw, content_type="application/json")
        response = {"uid": review["request"]["uid"], **self.response}
        if (patch := self.patches.get(request.path)) is not None:
            response |= {"patchType": "JSONPatch", "patch": b64encode(orjson.dumps(patch)).decode()}
        body = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}
        return web.Response(body=orjson.dumps({**body, "response": response}))

    @property
    def paths(self) -> list[str]:
        return [asked["path"] for asked in self.asked]


@pytest.fixture
async def reviewer() -> AsyncIterator[Reviewer]:
    found = Reviewer()
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    names = ("127.0.0.1", "hook.sluice.svc")
    found.authority.issue_cert(*names).configure_cert(trust)
    application = web.Application()
    application.router.add_post("/{tail:.*}", found.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=trust)
    await site.start()
    port = runner.addresses[0][1]
    found.url = f"https://127.0.0.1:{port}"
    yield found
    await runner.cleanup()


@pytest.fixture
async def cluster(reviewer: Reviewer) -> AsyncIterator[Api]:
    made = api()
    webhooks = Webhooks(made, random=Random(1), services={("sluice", "hook"): reviewer.url})
    webhooks.start()
    yield made
    await webhooks.stop()


def hook(reviewer: Reviewer, path: str = "m", **members: Any) -> Obj:
    bundle = b64encode(reviewer.authority.cert_pem.bytes()).decode()
    rule = {
        "operations": ["CREATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
    }
    return {
        "name": f"{path}.example.com",
        "clientConfig": {"url": f"{reviewer.url}/{path}", "caBundle": bundle},
        "rules": [{**rule, **members.pop("rule", {})}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **members,
    }


async def configure(cluster: Api, *hooks: Obj, name: str = "config", mutating: bool = True) -> None:
    plural = "mutatingwebhookconfigurations" if mutating else "validatingwebhookconfigurations"
    body = {"metadata": {"name": name}, "webhooks": list(hooks)}
    await cluster.create(kind(cluster, plural, GROUP), "v1", "", body)


async def create(cluster: Api, body: Obj | None = None, *, dry_run: bool = False) -> Obj:
    maps = kind(cluster, "configmaps")
    body = config_map() if body is None else body
    return (await cluster.create(maps, "v1", "default", body, dry_run=dry_run)).obj


def label(key: str) -> list[Obj]:
    return [{"op": "add", "path": f"/metadata/labels/{key}", "value": "x"}]


async def test_a_mutation_is_stored(cluster: Api, reviewer: Reviewer) -> None:
    await configure(cluster, hook(reviewer))
    reviewer.patches["/m"] = label("a")

    obj = await create(cluster, config_map(labels={"own": "y"}))

    assert obj["metadata"]["labels"] == {"own": "y", "a": "x"}
    (asked,) = reviewer.asked
    assert asked["operation"] == "CREATE"
    assert asked["object"]["data"] == {"k": "v"}
    assert "uid" not in asked["object"]["metadata"], "mutation comes before the server's own fields"
    assert asked["oldObject"] is None
    assert asked["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert asked["namespace"] == "default"


async def test_configurations_are_asked_in_the_order_of_their_names(
    cluster: Api, reviewer: Reviewer
) -> None:
    for name in ("zebra", "ant", "mole"):
        await configure(cluster, hook(reviewer, name), name=name)

    await create(cluster)

    assert reviewer.paths == ["/ant", "/mole", "/zebra"]


async def test_a_webhook_sees_what_those_before_have_changed(
    cluster: Api, reviewer: Reviewer
) -> None:
    await configure(cluster, hook(reviewer, "a"), hook(reviewer, "b"))
    reviewer.patches["/a"] = [{"op": "add", "path": "/data/x", "value": "1"}]

    await create(cluster)

    assert reviewer.asked[1]["object"]["data"] == {"k": "v", "x": "1"}


async def test_kueues_webhook_comes_before_tektons_defaults(
    cluster: Api, reviewer: Reviewer
) -> None:
    cluster.admission.plugins.append(TektonAdmission())
    rule = {"apiGroups": ["tekton.dev"], "resources": ["pipelineruns"]}
    await configure(cluster, hook(reviewer, rule=rule), name="tekton-kueue-webhook")

    runs = kind(cluster, "pipelineruns", "tekton.dev")
    stored = await cluster.create(runs, "v1", "default", pipeline_run())

    assert "timeouts" not in reviewer.asked[0]["object"]["spec"]
    assert stored.obj["spec"]["timeouts"] == {"pipeline": "1h0m0s"}


async def test_validation_sees_the_object_as_it_will_be_stored(
    cluster: Api, reviewer: Reviewer
) -> None:
    await configure(cluster, hook(reviewer, "m"))
    await configure(cluster, hook(reviewer, "v"), mutating=False)
    reviewer.patches["/m"] = [{"op": "add", "path": "/data/x", "value": "1"}]

    obj = await create(cluster)

    assert reviewer.paths == ["/m", "/v"]
    assert reviewer.asked[1]["object"]["data"] == {"k": "v", "x": "1"}
    assert reviewer.asked[1]["object"]["metadata"]["uid"] == obj["metadata"]["uid"]


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
async def test_denials(cluster: Api, reviewer: Reviewer, case: Denial, mutating: bool) -> None:
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
    "it is not there": Fault(client={"url": "https://127.0.0.1:1/x"}),
    "its certificate is not trusted": Fault(client={"caBundle": ""}),
    "its service is not known": Fault(
        client={"url": None, "service": {"namespace": "x", "name": "y"}}
    ),
    "it is too slow": Fault(delay_seconds=5),
    "it answers what is no JSON": Fault(raw=b"{"),
    "it answers what is no review": Fault(raw=b"[]"),
    "it answers another request": Fault(raw=b'{"response":{"uid":"x","allowed":true}}'),
}


@pytest.mark.parametrize("case", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
async def test_a_webhook_that_cannot_be_asked(
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


async def test_a_service_is_found_where_the_simulator_was_told(
    cluster: Api, reviewer: Reviewer
) -> None:
    by_service = hook(reviewer)
    service = {"namespace": "sluice", "name": "hook", "path": "/mutate"}
    by_service["clientConfig"] |= {"url": None, "service": service}
    await configure(cluster, by_service)

    await create(cluster)

    assert reviewer.paths == ["/mutate"]


@dataclass(frozen=True, kw_only=True)
class Aim:
    members: Obj
    asked: bool


AIMS = {
    "another resource": Aim(members={"rule": {"resources": ["secrets"]}}, asked=False),
    "every resource": Aim(members={"rule": {"resources": ["*"]}}, asked=True),
    "every group": Aim(members={"rule": {"apiGroups": ["*"]}}, asked=True),
    "another operation": Aim(members={"rule": {"operations": ["UPDATE"]}}, asked=False),
    "cluster-wide kinds only": Aim(members={"rule": {"scope": "Cluster"}}, asked=False),
    "objects with a label": Aim(
        members={"objectSelector": {"matchLabels": {"x": "1"}}}, asked=True
    ),
    "objects with another label": Aim(
        members={"objectSelector": {"matchLabels": {"x": "2"}}}, asked=False
    ),
    "this namespace": Aim(
        members={"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}},
        asked=True,
    ),
    "all namespaces but this": Aim(
        members={
            "namespaceSelector": {
                "matchExpressions": [
                    {
                        "key": "kubernetes.io/metadata.name",
                        "operator": "NotIn",
                        "values": ["default"],
                    }
                ]
            }
        },
        asked=False,
    ),
}


@pytest.mark.parametrize("case", AIMS.values(), ids=AIMS.keys())
async def test_a_webhook_is_asked_only_about_what_it_aims_at(
    cluster: Api, reviewer: Reviewer, case: Aim
) -> None:
    await configure(cluster, hook(reviewer, **case.members))

    await create(cluster, config_map(labels={"x": "1"}))

    assert bool(reviewer.asked) is case.asked


@pytest.mark.parametrize(("policy", "seen"), [("Equivalent", ["v1beta1"]), ("Exact", [])])
async def test_an_equivalent_version_is_converted_for_the_webhook(
    cluster: Api, reviewer: Reviewer, policy: str, seen: list[str]
) -> None:
    rule = {
        "apiGroups": ["kueue.x-k8s.io"],
        "apiVersions": ["v1beta1"],
        "resources": ["clusterqueues"],
    }
    await configure(cluster, hook(reviewer, rule=rule, matchPolicy=policy))
    reviewer.patches["/m"] = [{"op": "replace", "path": "/spec/cohort", "value": "d"}]
    queues = kind(cluster, "clusterqueues", "kueue.x-k8s.io")

    body = {"metadata": {"name": "q"}, "spec": {"cohortName": "c"}}
    stored = await cluster.create(queues, "v1beta2", "", body)

    assert [asked["kind"]["version"] for asked in reviewer.asked] == seen
    assert stored.obj["spec"]["cohortName"] == ("d" if seen else "c")


async def test_updates_and_deletions_show_the_old_object(cluster: Api, reviewer: Reviewer) -> None:
    rule = {"operations": ["UPDATE", "DELETE"]}
    await configure(cluster, hook(reviewer, rule=rule))
    maps = kind(cluster, "configmaps")
    await create(cluster)

    await cluster.patch(maps, "v1", "default", "a", {"data": {"k": "w"}}, "merge")
    await cluster.delete(maps, "default", "a", DeleteOptions())

    update, deletion = reviewer.asked
    assert (update["oldObject"]["data"], update["object"]["data"]) == ({"k": "v"}, {"k": "w"})
    assert (deletion["oldObject"]["data"], deletion["object"]) == ({"k": "w"}, None)


@pytest.mark.parametrize(("effects", "code"), [("None", 0), ("NoneOnDryRun", 0), ("Some", 400)])
async def test_a_dry_run_reaches_only_webhooks_without_side_effects(
    cluster: Api, reviewer: Reviewer, effects: str, code: int
) -> None:
    await configure(cluster, hook(reviewer, sideEffects=effects))

    if code:
        with pytest.raises(ApiError) as refused:
            await create(cluster, dry_run=True)
        assert refused.value.code == code
    else:
        await create(cluster, dry_run=True)
        assert reviewer.asked[0]["dryRun"] is True


async def test_a_patch_that_does_not_apply_is_an_internal_error(
    cluster: Api, reviewer: Reviewer
) -> None:
    await configure(cluster, hook(reviewer))
    reviewer.patches["/m"] = [{"op": "remove", "path": "/nowhere"}]

    with pytest.raises(ApiError) as refused:
        await create(cluster)

    assert refused.value.code == 500


async def test_webhooks_are_not_asked_about_webhook_configurations(
    cluster: Api, reviewer: Reviewer
) -> None:
    rule = {"apiGroups": ["*"], "resources": ["*"]}
    await configure(cluster, hook(reviewer, rule=rule), name="a")
    await configure(cluster, hook(reviewer, rule=rule), name="b")

    assert reviewer.asked == []


async def test_a_write_that_was_overtaken_while_a_webhook_thought_is_tried_again(
    cluster: Api, reviewer: Reviewer
) -> None:
    await configure(cluster, hook(reviewer, rule={"operations": ["UPDATE"]}))
    reviewer.delay_seconds = 0.05
    maps = kind(cluster, "configmaps")
    await create(cluster)

    patches = ({"data": {key: "1"}} for key in ("a", "b"))
    await asyncio.gather(
        *(cluster.patch(maps, "v1", "default", "a", patch, "merge") for patch in patches)
    )

    assert cluster.get(maps, "default", "a").obj["data"] == {"k": "v", "a": "1", "b": "1"}
    assert len(reviewer.asked) == 3
