"""Conditions and metrics of spokes and checks."""

import asyncio
from typing import Any

import pytest
from prometheus_client import REGISTRY

from shared.contracts.kube import kinds
from shared.contracts.messages.spokes import CheckCondition, PairState
from tests.unit.dispatcher.harness import CHECK, Harness, job

PUBLISH_SECONDS = 30
"""Longer than the interval of publishing."""


def config(*clusters: str) -> dict[str, Any]:
    return {"metadata": {"name": "all", "uid": "uid-all"}, "spec": {"clusters": list(clusters)}}


def check_condition(harness: Harness) -> tuple[bool, str, str]:
    entry = harness.server.latest("SPOKES", f"sluice.standing.hub._.{CHECK}")
    assert entry is not None
    condition = CheckCondition.decode(entry.data)
    return condition.active, condition.reason, condition.message


CHECK_CONDITIONS = {
    "every cluster is heard": (("east", "west"), (), (True, "Active", "Every cluster can be used")),
    "one has no object": (
        ("east", "west", "north"), (),
        (True, "SomeActiveClusters", "Missing clusters: north"),
    ),
    "one is not heard": (
        ("east", "west"), ("west",), (True, "SomeActiveClusters", "Inactive clusters: west"),
    ),
    "none is heard, and one has no object": (
        ("east", "west", "north"), ("east", "west"),
        (False, "NoUsableClusters", "Missing clusters: north; Inactive clusters: east, west"),
    ),
    "the only one has no object": (
        ("north",), (), (False, "NoUsableClusters", "Missing clusters: north"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("named", "silent", "expected"), CHECK_CONDITIONS.values(), ids=CHECK_CONDITIONS.keys()
)
def test_check_is_active_while_one_of_its_clusters_is_usable(
    named: tuple[str, ...], silent: tuple[str, ...], expected: tuple[bool, str, str]
) -> None:
    with Harness() as harness:
        harness.silent.update(silent)

        async def drive() -> None:
            await harness.observe(kinds.MULTIKUEUE_CONFIG, config(*named))
            await asyncio.sleep(PUBLISH_SECONDS)
            assert check_condition(harness) == expected

        harness.run(drive)


def test_check_is_inactive_until_its_configuration_exists() -> None:
    with Harness() as harness:

        async def drive() -> None:
            await harness.observe(kinds.MULTIKUEUE_CONFIG, config(), deleted=True)
            await asyncio.sleep(PUBLISH_SECONDS)
            missing = f'MultiKueueConfig "all" of AdmissionCheck "{CHECK}" not found'
            assert check_condition(harness) == (False, "BadConfig", missing)
            await harness.observe(kinds.MULTIKUEUE_CONFIG, config("east"))
            await asyncio.sleep(PUBLISH_SECONDS)
            assert check_condition(harness)[:2] == (True, "Active")

        harness.run(drive)


def test_check_with_other_parameters_is_inactive() -> None:
    with Harness() as harness:

        async def drive() -> None:
            parameters = {"apiGroup": "example.com", "kind": "Something", "name": "all"}
            spec = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}
            check = {"metadata": {"name": CHECK, "uid": f"uid-{CHECK}"}, "spec": spec}
            await harness.observe(kinds.ADMISSION_CHECK, check)
            await asyncio.sleep(PUBLISH_SECONDS)
            names_none = f'AdmissionCheck "{CHECK}" names no MultiKueueConfig'
            assert check_condition(harness) == (False, "BadConfig", names_none)

        harness.run(drive)


@pytest.mark.parametrize(("mode", "active"), [("Automated", False), ("Manual", True)])
def test_check_whose_quotas_shall_follow_the_spokes_is_inactive(mode: str, active: bool) -> None:
    with Harness() as harness:

        async def drive() -> None:
            managed = config("east")
            managed["spec"]["quotaManagement"] = mode
            await harness.observe(kinds.MULTIKUEUE_CONFIG, managed)
            await asyncio.sleep(PUBLISH_SECONDS)
            is_active, _, message = check_condition(harness)
            assert is_active is active
            refusal = 'MultiKueueConfig "all": spec.quotaManagement: Automated is not offered'
            assert message.startswith(refusal) is not active

        harness.run(drive)


def test_problem_of_kubeconfig_is_in_condition_of_its_cluster() -> None:
    with Harness() as harness:

        async def publish_problem(problem: str) -> None:
            await harness.bus.publish(
                PairState(cluster="hub", spoke="east", problem=problem, at=harness.world.now())
            )

        async def drive() -> None:
            await harness.until_spoke("east", active=True)
            await publish_problem("Secret east: there is no file")
            state = await harness.until_spoke("east", active=False)
            assert (state.reason, state.message) == ("BadConfig", "Secret east: there is no file")
            await publish_problem("")
            assert (await harness.until_spoke("east", active=True)).reason == "Active"

        harness.run(drive)


def sourced(name: str, **source: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"clusterSource": source}}


PROFILE: dict[str, Any] = {"clusterProfileRef": {"name": "east"}}
KUBECONFIG: dict[str, Any] = {"kubeConfig": {"location": "east"}}


def test_cluster_profile_that_leads_nowhere_has_a_reason_of_its_own() -> None:
    with Harness() as harness:

        async def drive() -> None:
            await harness.until_spoke("east", active=True)
            await harness.observe(kinds.MULTIKUEUE_CLUSTER, sourced("east", **PROFILE))
            problem = "ClusterProfile sluicegate/east: does not exist"
            at = harness.world.now()
            await harness.bus.publish(
                PairState(cluster="hub", spoke="east", problem=problem, at=at)
            )
            state = await harness.until_spoke("east", active=False)
            assert (state.reason, state.message) == ("BadClusterProfile", problem)

        harness.run(drive)


def test_unserved_kubeconfig_and_silent_spoke_have_different_messages() -> None:
    with Harness() as harness:
        harness.silent = {"east", "west"}

        async def drive() -> None:
            await harness.observe(kinds.MULTIKUEUE_CLUSTER, sourced("east", **KUBECONFIG))
            east = await harness.until_spoke("east", active=False)
            west = await harness.until_spoke("west", active=False)
            assert east.message == (
                "Nothing is heard of it, nor of `sluice run pairs`, which serves clusters with a kubeConfig"
            )
            assert west.message == "Nothing is heard of it"

        harness.run(drive)


def measured(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_metrics_count_offers_and_winners_and_drop_removed_spokes() -> None:
    def counted(what: str, spoke: str) -> float:
        labels = {"cluster_queue": "", "cluster": spoke, "replica_role": "leader"}
        return measured(f"multikueue_workloads_{what}_total", **labels) or 0.0

    with Harness() as harness:
        before = {
            (what, spoke): counted(what, spoke)
            for what in ("dispatched", "admitted")
            for spoke in ("east", "west")
        }

        async def drive() -> None:
            train = job()
            await harness.submit(train)
            await harness.decide(train, "reserved")
            east = await harness.until_order("east", "offered")
            west = await harness.until_order("west", "offered")
            await harness.observe_copy("east", east)
            await harness.observe_copy("west", west)
            await harness.observe_remote_workload("west", west)
            await harness.until_order("west", "chosen")
            await asyncio.sleep(PUBLISH_SECONDS)

            def grown(what: str, spoke: str) -> float:
                return counted(what, spoke) - before[what, spoke]

            assert [grown("dispatched", spoke) for spoke in ("east", "west")] == [1, 1]
            assert [grown("admitted", spoke) for spoke in ("east", "west")] == [0, 1]
            assert measured("multikueue_workloads", cluster="west", order="chosen") == 1
            assert measured("multikueue_workloads", cluster="east", order="withdrawing") == 1
            assert measured("multikueue_cluster_connected", cluster="west") == 1
            assert measured("multikueue_cluster_latency_seconds", cluster="west") is not None
            await harness.report("east", west.model_copy(update={"spoke": "east"}), "refused", "no")
            await asyncio.sleep(PUBLISH_SECONDS)
            assert measured("multikueue_cluster_failures", cluster="east") == 1
            gone = {"metadata": {"name": "west", "uid": "uid-west"}, "spec": {}}
            await harness.observe(kinds.MULTIKUEUE_CLUSTER, gone, deleted=True)
            await asyncio.sleep(PUBLISH_SECONDS)
            assert measured("multikueue_cluster_connected", cluster="west") is None
            assert measured("multikueue_workloads", cluster="west", order="chosen") is None

        harness.run(drive)
