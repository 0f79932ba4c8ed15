"""Whose name a request has: that of the service account which it names, or the administrator's."""

from pathlib import Path

import pytest

from services.ctl.setup.match_conditions import NOT_OUR_OWN
from services.simulator.app import Simulator
from services.simulator.http.reviews import ADMINISTRATOR, user_of
from shared.contracts.kube.kinds import Kind
from shared.contracts.simulation import PATCHER_CONTEXT
from shared.contracts.webhook import PATCHER_USER
from shared.kube.client import HttpKube
from tests.unit.simulator.webhooks import Reviewer, configure, hook

CONFIG_MAP = Kind(group="", version="v1", plural="configmaps", kind="ConfigMap")


@pytest.mark.parametrize(
    ("authorization", "user"),
    [
        ("", ADMINISTRATOR),
        ("Bearer something", ADMINISTRATOR),
        (f"Bearer {PATCHER_USER}", PATCHER_USER),
    ],
    ids=["no token", "a token", "a service account"],
)
def test_bearer_token_is_the_name_of_a_service_account(authorization: str, user: str) -> None:
    assert user_of(authorization) == user


async def test_webhook_is_not_asked_about_writes_in_the_context_of_the_patcher(
    reviewer: Reviewer, tmp_path: Path
) -> None:
    simulator = Simulator(behaviour=False)
    await simulator.start()
    file = tmp_path / "kubeconfig"
    file.write_text(simulator.kubeconfig())
    clients = {
        name: HttpKube.from_kubeconfig(str(file), context=name) for name in (None, PATCHER_CONTEXT)
    }
    try:
        await configure(simulator.api, hook(reviewer, matchConditions=[NOT_OUR_OWN]))
        for name, client in clients.items():
            named = {"name": f"of-{name or 'anybody'}".lower(), "namespace": "default"}
            await client.create(CONFIG_MAP, {"metadata": named})
        asked = [each["name"] for each in reviewer.asked]
        assert asked == ["of-anybody"]
        assert reviewer.asked[0]["userInfo"]["username"] == ADMINISTRATOR
    finally:
        for client in clients.values():
            await client.close()
        await simulator.stop()
