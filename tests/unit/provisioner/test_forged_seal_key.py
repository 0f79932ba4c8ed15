"""A key to which nothing can be sealed does not replace the patcher's."""

import base64

import pytest

from shared.contracts.messages.hosts import SealKey
from tests.unit.provisioner.harness import HostHarness, task_run, unseal

KEYS = {
    "no base64": "junk!",
    "too short": base64.b64encode(b"short").decode(),
    "nothing": "",
    "a key that everybody has": base64.b64encode(bytes(32)).decode(),
    "a key of small order": base64.b64encode(bytes([1, *bytes(31)])).decode(),
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_key_to_which_nothing_can_be_sealed_is_refused(key: str) -> None:
    with HostHarness() as harness:

        async def scenario() -> None:
            await harness.observe_task_run(task_run("first"))
            await harness.wait_for("first", "ready")
            forged = SealKey(cluster="hub", public_key=key, at=harness.world.now())
            await harness.bus.publish(forged)
            await harness.observe_task_run(task_run("second"))
            ready = await harness.wait_for("second", "ready")
            assert "id_rsa" in unseal(ready)

        harness.run_with_patcher(scenario)
