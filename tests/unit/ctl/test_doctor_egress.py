"""Whether the doctor sees that services may reach any address outside, and names the API server's."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from services.ctl.doctor.egress import TO_API_SERVER, egress_findings, open_egress
from shared.kube.client import HttpKube
from tests.contract.deploy.rendering import kustomized

BLOCK = {"to": [{"ipBlock": {"cidr": "192.0.2.10/32"}}]}


def rendered() -> list[dict[str, Any]]:
    return [one for one in kustomized("hub") if one["kind"] == "NetworkPolicy"]


def closed(*names: str) -> list[dict[str, Any]]:
    policies = copy.deepcopy(rendered())
    for policy in policies:
        if policy["metadata"]["name"] in names:
            for rule in policy["spec"]["egress"]:
                rule.update(BLOCK)
    return policies


def addresses(name: str, *found: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "endpoints": [{"addresses": [one]} for one in found]}


SLICES = [addresses("kubernetes", "192.0.2.10", "2001:db8::1"), addresses("other", "192.0.2.99")]


def test_doctor_reports_open_egress_with_the_addresses_that_close_it() -> None:
    [found] = egress_findings(rendered(), SLICES)
    assert found.where == "NetworkPolicy watcher, patcher, console"
    assert "egress.apiServer={192.0.2.10/32,2001:db8::1/128}'" in found.advice
    assert not found.wrong


@pytest.mark.parametrize(
    ("policies", "where"),
    [
        pytest.param(lambda: closed(*TO_API_SERVER), [], id="all are closed"),
        pytest.param(
            lambda: closed("watcher"), ["NetworkPolicy patcher, console"], id="one is closed"
        ),
        pytest.param(list, [], id="there are none"),
    ],
)
def test_closed_egress_is_no_finding(
    policies: Callable[[], list[dict[str, Any]]], where: list[str]
) -> None:
    assert [found.where for found in egress_findings(policies(), SLICES)] == where


@pytest.mark.parametrize(("status", "count"), [(200, 1), (403, 0), (404, 0)])
async def test_policies_of_our_namespace_are_listed_where_one_may(status: int, count: int) -> None:
    items = {
        "/apis/networking.k8s.io/v1/namespaces/ours/networkpolicies": rendered(),
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices": SLICES,
    }

    async def answer(asked: web.Request) -> web.Response:
        body = {"metadata": {"resourceVersion": "1"}, "items": items[asked.path]}
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    kube = HttpKube.at(f"http://127.0.0.1:{runner.addresses[0][1]}")
    try:
        assert len(await open_egress(kube, namespace="ours")) == count
    finally:
        await kube.close()
        await runner.cleanup()
