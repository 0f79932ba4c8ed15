"""What a spoke does for each order of the hub, and what it reports."""

from typing import Any

import pytest

from shared.bus.port import LaterError
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import as_body
from shared.contracts.kube.kinds import Object
from shared.contracts.messages.dispatches import Dispatch
from shared.telemetry import probes
from shared.testing.probing import acts
from tests.unit.patcher.copy_stage import ORDER, ORIGIN, PREBUILT, Spoke, copy, order


@pytest.fixture
async def spoke() -> Any:
    one = Spoke()
    await one.bus.start()
    yield one
    await one.bus.stop()


async def test_offer_creates_the_copy_and_reports_nothing(spoke: Spoke) -> None:
    await spoke.apply(order("offered"))
    await spoke.apply(order("offered"))
    made = await spoke.job()
    assert made is not None
    assert made["spec"]["suspend"]
    assert await spoke.reported() is None


async def test_withdrawn_copy_is_removed_and_reported(spoke: Spoke) -> None:
    await spoke.apply(order("offered"))
    await spoke.apply(order("withdrawn"))
    assert await spoke.job() is None
    report = await spoke.reported()
    assert report is not None
    assert (report.state, report.number) == ("gone", 7)


DONE: Object = {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}


async def test_success_before_the_removal_is_reported(spoke: Spoke) -> None:
    await spoke.apply(order("offered"))
    await spoke.end(DONE)
    await spoke.apply(order("withdrawn"))
    assert await spoke.job() is None
    report = await spoke.reported()
    assert report is not None
    assert (report.state, report.ended) == ("gone", DONE)


async def test_success_is_reported_although_another_finalizer_keeps_the_copy(spoke: Spoke) -> None:
    job = copy()
    job["metadata"]["finalizers"].append("chains.tekton.dev")
    await spoke.apply(order("offered", job=job))
    await spoke.end(DONE)
    with pytest.raises(AssertionError, match="the order is never done"):
        await spoke.apply(order("withdrawn"))
    kept = await spoke.job()
    assert kept is not None
    assert kept["metadata"]["finalizers"] == ["chains.tekton.dev"]
    report = await spoke.reported()
    assert report is not None
    assert report.ended == DONE


async def test_reported_success_survives_a_repeated_withdrawal(
    spoke: Spoke,
) -> None:
    await spoke.apply(order("offered"))
    await spoke.end(DONE)
    await spoke.apply(order("withdrawn"))
    await spoke.apply(order("withdrawn"))
    report = await spoke.reported()
    assert report is not None
    assert report.ended == DONE


async def test_failure_is_not_reported_as_success(spoke: Spoke) -> None:
    await spoke.apply(order("offered"))
    await spoke.end({"failed": 1, "conditions": [{"type": "Failed", "status": "True"}]})
    await spoke.apply(order("withdrawn"))
    report = await spoke.reported()
    assert report is not None
    assert (report.state, report.ended) == ("gone", None)


async def test_withdrawal_without_a_copy_is_reported_as_gone(spoke: Spoke) -> None:
    await spoke.apply(order("withdrawn"))
    report = await spoke.reported()
    assert report is not None
    assert report.state == "gone"


async def test_copy_deleted_by_a_user_stays_until_its_withdrawal(spoke: Spoke) -> None:
    await spoke.apply(order("offered"))
    await spoke.kube.delete(kinds.JOB, "default", "train")
    kept = await spoke.job()
    assert kept is not None, "its end has to come home"
    await spoke.apply(order("withdrawn"))
    assert await spoke.job() is None


async def test_copy_deleted_once_more_by_a_user_stays_until_its_pods_are_gone(spoke: Spoke) -> None:
    """The user deletes it in the background: the server forgets that its pods were to go first."""
    await spoke.apply(order("offered"))
    made = await spoke.job()
    assert made is not None
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True,
             "blockOwnerDeletion": True, "uid": made["metadata"]["uid"]}  # fmt: skip
    metadata = {
        "name": "p", "namespace": "default", "ownerReferences": [owner], "finalizers": ["a.test/ends"],
    }  # fmt: skip
    containers = [{"name": "c", "image": "none"}]
    await spoke.kube.create(kinds.POD, {"metadata": metadata, "spec": {"containers": containers}})
    with pytest.raises(LaterError):
        await spoke.copies.apply(order("withdrawn"))
    await spoke.kube.delete(kinds.JOB, "default", "train")
    with pytest.raises(LaterError):
        await spoke.copies.apply(order("withdrawn"))
    assert await spoke.job() is not None
    assert await spoke.reported() is None
    await spoke.kube.patch(kinds.POD, "default", "p", {"metadata": {"finalizers": []}})
    await spoke.apply(order("withdrawn"))
    assert await spoke.job() is None
    assert await spoke.reported() is not None


OTHERS = {
    "it is no copy": {"labels": {}, "annotations": {}},
    "it is another hub's": {"annotations": {ORDER: "hub-b/7"}},
    "it is a stock hub's": {"annotations": {}},
    "its order names no hub": {"annotations": {ORDER: "/7"}},
    "it comes from elsewhere": {"labels": {ORIGIN: "b", PREBUILT: "wl"}},
}


@pytest.mark.parametrize("more", OTHERS.values(), ids=OTHERS.keys())
async def test_taken_name_is_reported_and_its_object_kept(
    spoke: Spoke, more: dict[str, Any]
) -> None:
    other = copy()
    other["metadata"] |= more
    theirs = await spoke.kube.create(kinds.JOB, other)
    await spoke.apply(order("offered"))
    report = await spoke.reported()
    assert report is not None
    assert (report.state, report.message) == ("taken", "Job default/train is there already")
    await spoke.apply(order("withdrawn"))
    kept = await spoke.job()
    assert kept is not None
    assert kept["metadata"]["uid"] == theirs["metadata"]["uid"]


async def test_earlier_copy_is_replaced(spoke: Spoke) -> None:
    await spoke.apply(order("offered", 7))
    with acts(probes.EARLIER_COPY):
        await spoke.apply(order("offered", 8))
    now = await spoke.job()
    assert now is not None
    assert now["metadata"]["annotations"][ORDER] == "hub/8"


async def test_earlier_withdrawal_keeps_the_copy_of_a_later_order(
    spoke: Spoke,
) -> None:
    await spoke.apply(order("offered", 8))
    await spoke.apply(order("withdrawn", 7))
    assert await spoke.job() is not None


async def test_refusal_is_reported_with_the_api_servers_message(spoke: Spoke) -> None:
    bad = copy()
    bad["metadata"]["name"] = "NoName"
    await spoke.apply(order("offered", job=bad))
    report = await spoke.reported()
    assert report is not None
    assert report.state == "refused"
    assert "NoName" in report.message


async def test_unknown_kind_is_refused_after_the_cache_is_synced(spoke: Spoke) -> None:
    unknown = {**copy(), "apiVersion": "example.com/v1", "kind": "Gadget"}
    spoke.reading = "reading OBSERVED"
    with pytest.raises(LaterError, match="reading OBSERVED"):
        await spoke.copies.apply(order("offered", job=unknown))
    assert await spoke.reported() is None
    spoke.reading = None
    await spoke.apply(order("offered", job=unknown))
    report = await spoke.reported()
    assert report is not None
    assert (report.state, report.message) == (
        "refused",
        "Gadget cannot wait on this cluster: no Integration here is for it",
    )


async def test_order_for_another_spoke_is_ignored(spoke: Spoke) -> None:
    await spoke.apply(order("offered", spoke="west"))
    assert await spoke.job() is None


async def test_requested_spec_change_is_applied_to_the_copy(spoke: Spoke) -> None:
    await spoke.apply(order("offered"))
    await spoke.apply(order("chosen", wish={"activeDeadlineSeconds": 5}))
    now = await spoke.job()
    assert now is not None
    assert now["spec"]["activeDeadlineSeconds"] == 5


STARTS: dict[str, tuple[list[Dispatch], bool]] = {
    "it is chosen": ([order("offered"), order("chosen")], True),
    "it is only offered": ([order("offered")], False),
    "it was withdrawn meanwhile": ([order("chosen"), order("withdrawn")], False),
    "another order is": ([order("chosen", 8)], False),
    "another hub's is": ([order("chosen", cluster="hub-b")], False),
    "nobody ordered anything": ([], False),
}


@pytest.mark.parametrize(("orders", "may"), STARTS.values(), ids=STARTS.keys())
async def test_copy_starts_only_by_an_order_that_chose_it(
    spoke: Spoke, orders: list[Dispatch], may: bool
) -> None:
    for one in orders:
        await spoke.bus.publish(one)
    assert await spoke.copies.may_start(copy()) is may


async def test_job_that_is_no_copy_may_start(spoke: Spoke) -> None:
    assert await spoke.copies.may_start(
        as_body({"metadata": {"name": "x", "namespace": "default"}})
    )
    stock = copy()
    del stock["metadata"]["annotations"]
    assert await spoke.copies.may_start(stock), "a stock Kueue hub starts and stops it by itself"
