"""How spokes and checks are said to stand: conditions for kubectl, and numbers for alerts."""

import asyncio
from typing import Any

import pytest
from prometheus_client import REGISTRY

from shared.contracts.kube import kinds
from shared.contracts.messages.spokes import CheckStanding, PairState
from tests.unit.dispatcher.stage import CHECK, Stage, job

LOOK_SECONDS = 30
"""Spokes are looked at every few seconds."""


def config(*clusters: str) -> dict[str, Any]:
    return {"metadata": {"name": "all", "uid": "uid-all"}, "spec": {"clusters": list(clusters)}}


def standing(stage: Stage) -> tuple[bool, str, str]:
    entry = stage.server.latest("SPOKES", f"sluice.standing.hub._.{CHECK}")
    assert entry is not None
    said = CheckStanding.decode(entry.data)
    return said.active, said.reason, said.message


STANDINGS = {
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


@pytest.mark.parametrize(("named", "silent", "expected"), STANDINGS.values(), ids=STANDINGS.keys())
def test_a_check_is_active_while_one_of_its_clusters_can_be_used(
    named: tuple[str, ...], silent: tuple[str, ...], expected: tuple[bool, str, str]
) -> None:
    with Stage() as stage:
        stage.silent.update(silent)

        async def drive() -> None:
            await stage.see(kinds.MULTIKUEUE_CONFIG, config(*named))
            await asyncio.sleep(LOOK_SECONDS)
            assert standing(stage) == expected

        stage.play(drive)


def test_a_check_without_its_configuration_is_inactive_until_there_is_one() -> None:
    with Stage() as stage:

        async def drive() -> None:
            await stage.see(kinds.MULTIKUEUE_CONFIG, config(), deleted=True)
            await asyncio.sleep(LOOK_SECONDS)
            missing = f'MultiKueueConfig "all" of AdmissionCheck "{CHECK}" not found'
            assert standing(stage) == (False, "BadConfig", missing)
            await stage.see(kinds.MULTIKUEUE_CONFIG, config("east"))
            await asyncio.sleep(LOOK_SECONDS)
            assert standing(stage)[:2] == (True, "Active")

        stage.play(drive)


def test_a_check_that_names_something_else_is_inactive() -> None:
    with Stage() as stage:

        async def drive() -> None:
            parameters = {"apiGroup": "example.com", "kind": "Something", "name": "all"}
            spec = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}
            check = {"metadata": {"name": CHECK, "uid": f"uid-{CHECK}"}, "spec": spec}
            await stage.see(kinds.ADMISSION_CHECK, check)
            await asyncio.sleep(LOOK_SECONDS)
            names_none = f'AdmissionCheck "{CHECK}" names no MultiKueueConfig'
            assert standing(stage) == (False, "BadConfig", names_none)

        stage.play(drive)


def test_a_kubeconfig_that_cannot_be_used_is_said_where_its_cluster_is_named() -> None:
    with Stage() as stage:

        async def say(problem: str) -> None:
            await stage.bus.publish(
                PairState(cluster="hub", spoke="east", problem=problem, at=stage.world.now())
            )

        async def drive() -> None:
            await stage.until_spoke("east", active=True)
            await say("Secret east: there is no file")
            state = await stage.until_spoke("east", active=False)
            assert (state.reason, state.message) == ("BadConfig", "Secret east: there is no file")
            await say("")
            assert (await stage.until_spoke("east", active=True)).reason == "Active"

        stage.play(drive)


def sourced(name: str, **source: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"clusterSource": source}}


PROFILE: dict[str, Any] = {"clusterProfileRef": {"name": "east"}}
KUBECONFIG: dict[str, Any] = {"kubeConfig": {"location": "east"}}


def test_a_cluster_profile_is_refused_in_words_that_say_what_there_is_instead() -> None:
    with Stage() as stage:

        async def drive() -> None:
            await stage.until_spoke("east", active=True)
            await stage.see(kinds.MULTIKUEUE_CLUSTER, sourced("east", **PROFILE))
            state = await stage.until_spoke("east", active=False)
            assert state.reason == "BadClusterProfile"
            assert "clusterProfileRef is not supported: name a kubeConfig, or" in state.message

        stage.play(drive)


def test_a_kubeconfig_that_nobody_serves_is_told_from_a_spoke_that_is_silent() -> None:
    with Stage() as stage:
        stage.silent = {"east", "west"}

        async def drive() -> None:
            await stage.see(kinds.MULTIKUEUE_CLUSTER, sourced("east", **KUBECONFIG))
            east = await stage.until_spoke("east", active=False)
            west = await stage.until_spoke("west", active=False)
            assert east.message == (
                "Nothing is heard of it, nor of `sluice run pairs`, which serves clusters with a kubeConfig"
            )
            assert west.message == "Nothing is heard of it"

        stage.play(drive)


def measured(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_metrics_count_what_was_sent_and_what_won_and_forget_a_spoke_that_is_no_more() -> None:
    def counted(what: str, spoke: str) -> float:
        labels = {"cluster_queue": "", "cluster": spoke, "replica_role": "leader"}
        return measured(f"multikueue_workloads_{what}_total", **labels) or 0.0

    with Stage() as stage:
        before = {
            (what, spoke): counted(what, spoke)
            for what in ("dispatched", "admitted")
            for spoke in ("east", "west")
        }

        async def drive() -> None:
            train = job()
            await stage.submit(train)
            await stage.decide(train, "reserved")
            east = await stage.until_dispatch("east", "offered")
            west = await stage.until_dispatch("west", "offered")
            await stage.show_copy("east", east)
            await stage.show_copy("west", west)
            await stage.show_quota("west", west)
            await stage.until_dispatch("west", "chosen")
            await asyncio.sleep(LOOK_SECONDS)

            def grown(what: str, spoke: str) -> float:
                return counted(what, spoke) - before[what, spoke]

            assert [grown("dispatched", spoke) for spoke in ("east", "west")] == [1, 1]
            assert [grown("admitted", spoke) for spoke in ("east", "west")] == [0, 1]
            assert measured("multikueue_workloads", cluster="west", order="chosen") == 1
            assert measured("multikueue_workloads", cluster="east", order="withdrawing") == 1
            assert measured("multikueue_cluster_connected", cluster="west") == 1
            assert measured("multikueue_cluster_latency_seconds", cluster="west") is not None
            await stage.report("east", west.model_copy(update={"spoke": "east"}), "refused", "no")
            await asyncio.sleep(LOOK_SECONDS)
            assert measured("multikueue_cluster_failures", cluster="east") == 1
            gone = {"metadata": {"name": "west", "uid": "uid-west"}, "spec": {}}
            await stage.see(kinds.MULTIKUEUE_CLUSTER, gone, deleted=True)
            await asyncio.sleep(LOOK_SECONDS)
            assert measured("multikueue_cluster_connected", cluster="west") is None
            assert measured("multikueue_workloads", cluster="west", order="chosen") is None

        stage.play(drive)
