"""Whether the doctor sees that the streams may outgrow the disk of NATS."""

from typing import Any

import pytest

from services.ctl.doctor.storage import storage_findings, volumes
from services.simulator.app import Simulator
from shared.contracts.kube.kinds import NAMESPACE, PERSISTENT_VOLUME_CLAIM
from shared.kube.client import HttpKube
from tests.unit.ctl.test_doctor import told

GIB = 1 << 30
VOLUME = "PersistentVolumeClaim sluicegate/data-nats-0"


def stream(name: str, max_bytes: int, storage: str = "file") -> dict[str, Any]:
    return {"name": name, "max_bytes": max_bytes, "storage": storage}


@pytest.mark.parametrize(
    ("streams", "room", "problems"),
    [
        pytest.param([stream("A", GIB), stream("B", GIB)], 2 * GIB, [], id="they just fit"),
        pytest.param([stream("A", GIB)], -1, [], id="the account has no limit"),
        pytest.param(
            [stream("A", GIB), stream("B", 2 * GIB)],
            2 * GIB,
            [f"{VOLUME}: has 2.0 GiB, and all streams together may grow to 3.0 GiB"],
            id="the volume is smaller than their sum",
        ),
        pytest.param(
            [stream("A", -1)], GIB, ["stream A: may grow without end"], id="one has no bound"
        ),
        pytest.param([stream("A", -1, "memory")], GIB, [], id="one in memory is not on the disk"),
    ],
)
def test_streams_that_outgrow_their_place_are_found(
    streams: list[dict[str, Any]], room: int, problems: list[str]
) -> None:
    assert told(storage_findings(streams, {VOLUME: room})) == problems


async def test_volumes_of_the_servers_are_measured_and_others_are_not() -> None:
    simulator = Simulator(behaviour=False)
    await simulator.start()
    kube = HttpKube.at(simulator.url)
    try:
        await kube.create(NAMESPACE, {"metadata": {"name": "sluicegate"}})
        for name in ("data-nats-0", "data-nats-1", "cache"):
            spec = {"resources": {"requests": {"storage": "64Gi"}}}
            claim = {"metadata": {"name": name, "namespace": "sluicegate"}, "spec": spec}
            await kube.create(PERSISTENT_VOLUME_CLAIM, claim)
        found = await volumes(kube, namespace="sluicegate")
        assert found == {f"{VOLUME[:-1]}{number}": 64 * GIB for number in (0, 1)}
    finally:
        await kube.close()
        await simulator.stop()
