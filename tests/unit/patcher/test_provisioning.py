"""Provisioning checks where the cache is behind the cluster, or the cluster refuses."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.patcher.provisioning import controller
from services.patcher.provisioning.answers import INACTIVE
from services.patcher.provisioning.requests import owner_reference
from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body, as_body
from shared.contracts.kube.conditions import MESSAGE_MAX
from shared.contracts.messages.observed import Synced
from shared.kube.port import NotFoundError
from shared.testing.builders import observed_object
from shared.testing.waiting import eventually
from tests.simulation.machines.test_provisioning import CHECK, CONFIG, DEFINITION
from tests.unit.patcher.stage import NOON, Setup

TAKEN = 'Error creating ProvisioningRequest "wl-capacity-1": the name is taken by another object; delete it'


class Cluster(Setup):
    """With a check, and a Workload that holds quota and waits for it."""

    async def observed(self, kind: kinds.Kind, obj: Any) -> Body:
        made = await self.kube.create(kind, as_body(obj))
        await self.observe(kind, made)
        return made

    async def reserve(self, *, at: str = "2026-01-01T12:00:00Z") -> Body:
        """The Workload, as it is observed once its quota is reserved."""
        template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"podSets": [{"name": "main", "count": 1, "template": template}], "queueName": "q"}
        made = await self.kube.create(
            kinds.WORKLOAD,
            as_body({"metadata": {"name": "wl", "namespace": "default"}, "spec": spec}),
        )
        assigned = {"name": "main", "count": 1, "flavors": {"cpu": "spot"}}
        held = {
            "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
            "lastTransitionTime": at,
        }  # fmt: skip
        status = {
            "admission": {"clusterQueue": "cq", "podSetAssignments": [assigned]},
            "conditions": [held],
            "admissionChecks": [
                {"name": "capacity", "state": "Pending", "message": "",
                 "lastTransitionTime": "2026-01-01T12:00:00Z"}
            ],
        }  # fmt: skip
        made = await self.kube.patch(
            kinds.WORKLOAD, "default", "wl", {"status": status}, subresource="status"
        )
        await self.observe(kinds.WORKLOAD, made)
        return made

    async def request(self) -> Body | None:
        try:
            return await self.kube.get(kinds.PROVISIONING_REQUEST, "default", "wl-capacity-1")
        except NotFoundError:
            return None

    async def check(self) -> tuple[str, str]:
        """State and message of the check."""
        obj = await self.kube.get(kinds.WORKLOAD, "default", "wl")
        (state,) = obj["status"]["admissionChecks"]
        return state["state"], state.get("message", "")

    async def looks(self) -> None:
        """Return when the controller has looked at a check that is new."""
        other = {"metadata": {"name": "other"}, "spec": CHECK["spec"]}
        await self.observed(kinds.ADMISSION_CHECK, other)

        async def looked() -> bool:
            obj = await self.kube.get(kinds.ADMISSION_CHECK, None, "other")
            return bool((obj.get("status") or {}).get("conditions"))

        await eventually(looked)

    async def until(self, state: str, message: str) -> None:
        async def told() -> bool:
            return await self.check() == (state, message)

        await eventually(told)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    subject = Cluster()
    await subject.bus.start()
    await subject.kube.create(kinds.CUSTOM_RESOURCE_DEFINITION, DEFINITION)
    await subject.start_patcher()
    await subject.flavor()
    for kind, obj in ((kinds.ADMISSION_CHECK, CHECK), (kinds.PROVISIONING_REQUEST_CONFIG, CONFIG)):
        await subject.observed(kind, obj)
    served = [kinds.PROVISIONING_REQUEST.detail]
    await subject.bus.publish(Synced(cluster="hub", epoch="1", kinds=served, at=NOON))
    yield subject
    await subject.kill_patcher()
    await subject.bus.stop()


async def asked(cluster: Cluster) -> Body:
    await eventually(cluster.request)
    made = await cluster.request()
    assert made is not None
    return made


async def provisioned(cluster: Cluster, message: str = "done") -> Body:
    condition = {"type": "Provisioned", "status": "True", "reason": "Done", "message": message}
    return await cluster.kube.patch(
        kinds.PROVISIONING_REQUEST, "default", "wl-capacity-1",
        {"status": {"conditions": [condition]}}, subresource="status",
    )  # fmt: skip


async def test_request_that_is_deleted_meanwhile_admits_nothing(cluster: Cluster) -> None:
    await cluster.reserve()
    first = await asked(cluster)
    answered = await provisioned(cluster)
    await cluster.kube.delete(kinds.PROVISIONING_REQUEST, "default", "wl-capacity-1")
    await cluster.observe(kinds.PROVISIONING_REQUEST, answered)

    async def again() -> bool:
        made = await cluster.request()
        return made is not None and made["metadata"]["uid"] != first["metadata"]["uid"]

    await eventually(again)
    assert (await cluster.check())[0] == "Pending"
    await cluster.observe(kinds.PROVISIONING_REQUEST, await provisioned(cluster))
    await cluster.until("Ready", "done")


async def test_request_in_deletion_admits_no_workload(cluster: Cluster) -> None:
    """The autoscaler has a finalizer on it: it is there until that goes."""
    await cluster.reserve()
    first = await asked(cluster)
    where = (kinds.PROVISIONING_REQUEST, "default", "wl-capacity-1")
    await cluster.kube.patch(*where, {"metadata": {"finalizers": ["example.com/autoscaler"]}})
    answered = await provisioned(cluster)
    await cluster.kube.delete(*where)
    await cluster.observe(kinds.PROVISIONING_REQUEST, answered)
    await cluster.looks()
    assert (await cluster.check())[0] == "Pending"
    await cluster.kube.patch(*where, {"metadata": {"finalizers": None}})
    await cluster.bus.publish(observed_object(kinds.PROVISIONING_REQUEST, answered, deleted=True))

    async def again() -> bool:
        made = await cluster.request()
        return made is not None and made["metadata"]["uid"] != first["metadata"]["uid"]

    await eventually(again)
    assert (await cluster.check())[0] == "Pending"


async def test_request_of_the_same_name_is_not_the_one_that_was_answered(cluster: Cluster) -> None:
    await cluster.reserve()
    first = await asked(cluster)
    answered = await provisioned(cluster, "first")
    await cluster.kube.delete(kinds.PROVISIONING_REQUEST, "default", "wl-capacity-1")
    kept = ("name", "namespace", "labels", "ownerReferences")
    metadata = {name: value for name, value in first["metadata"].items() if name in kept}
    await cluster.kube.create(kinds.PROVISIONING_REQUEST, as_body({**first, "metadata": metadata}))
    await cluster.observe(kinds.PROVISIONING_REQUEST, answered)
    await cluster.looks()
    await cluster.observe(kinds.PROVISIONING_REQUEST, await provisioned(cluster, "second"))
    await cluster.until("Ready", "second")


async def test_answer_is_no_older_than_the_reservation_and_no_longer_than_allowed(
    cluster: Cluster,
) -> None:
    reserved_at = "2026-01-01T12:00:05Z"  # The clock of this patcher says twelve.
    await cluster.reserve(at=reserved_at)
    await asked(cluster)
    text = "x" * (MESSAGE_MAX + 1)
    await cluster.observe(kinds.PROVISIONING_REQUEST, await provisioned(cluster, text))
    await cluster.until("Ready", text[:MESSAGE_MAX])
    obj = await cluster.kube.get(kinds.WORKLOAD, "default", "wl")
    assert obj["status"]["admissionChecks"][0]["lastTransitionTime"] == reserved_at


async def test_request_is_made_once_by_two_processes(cluster: Cluster) -> None:
    workload = await cluster.reserve()
    first = await asked(cluster)
    await cluster.kill_patcher()
    await cluster.start_patcher()
    await cluster.observe(kinds.WORKLOAD, {**workload, "metadata": {**workload["metadata"]}})
    await cluster.observe(kinds.PROVISIONING_REQUEST, await provisioned(cluster))
    await cluster.until("Ready", "done")
    made = await asked(cluster)
    assert made["metadata"]["uid"] == first["metadata"]["uid"]


async def test_request_stays_until_its_workload_ends_or_is_evicted(cluster: Cluster) -> None:
    await cluster.reserve()
    first = await asked(cluster)
    for condition in (
        {"type": "QuotaReserved", "status": "False"},
        {"type": "Evicted", "status": "True"},
    ):
        status = {
            "admission": None,
            "conditions": [condition | {"reason": "Pending", "message": ""}],
        }
        workload = await cluster.kube.patch(
            kinds.WORKLOAD, "default", "wl", {"status": status}, subresource="status"
        )
        assert await cluster.request() == first, "it serves the next reservation"
        await cluster.observe(kinds.WORKLOAD, workload)
        if condition["type"] == "QuotaReserved":
            await cluster.looks()

    async def is_gone() -> bool:
        return await cluster.request() is None

    await eventually(is_gone)


async def test_request_whose_name_is_taken_is_pending_with_that_reason(cluster: Cluster) -> None:
    theirs = {"metadata": {"name": "wl-capacity-1", "namespace": "default"}, "spec": {}}
    await cluster.kube.create(kinds.PROVISIONING_REQUEST, as_body(theirs))
    await cluster.reserve()
    await cluster.until("Pending", TAKEN)


async def test_request_that_cannot_be_made_is_pending_with_the_error_and_tried_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "REFUSED_SECONDS", 0.05)
    flavor = await cluster.kube.get(kinds.RESOURCE_FLAVOR, None, "spot")
    gone = observed_object(kinds.RESOURCE_FLAVOR, flavor, deleted=True)
    await cluster.bus.publish(gone)
    await cluster.reserve()
    await cluster.until(
        "Pending",
        'Error creating PodTemplate "ppt-wl-capacity-1-main": ResourceFlavor spot: not found',
    )
    back = await cluster.kube.patch(
        kinds.RESOURCE_FLAVOR, None, "spot", {"spec": {"nodeLabels": {}}}
    )
    await cluster.observe(kinds.RESOURCE_FLAVOR, back)
    await asked(cluster)


async def test_templates_go_with_the_request_and_keep_their_other_owners(cluster: Cluster) -> None:
    workload = await cluster.reserve()
    made = await asked(cluster)
    name = "ppt-wl-capacity-1-main"
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": "theirs"}

    async def owners() -> list[Any]:
        found = await cluster.kube.get(kinds.POD_TEMPLATE, "default", name)
        return list(found["metadata"]["ownerReferences"])

    async def handed_over() -> bool:
        return [one["uid"] for one in await owners()] == [made["metadata"]["uid"]]

    await eventually(handed_over)
    # As before the hand-over, and with somebody else's reference: another process finds it so.
    ours = owner_reference(kinds.WORKLOAD, workload)
    await cluster.kube.patch(
        kinds.POD_TEMPLATE, "default", name, {"metadata": {"ownerReferences": [ours, other]}}
    )
    await cluster.kill_patcher()
    await cluster.start_patcher()

    async def again() -> bool:
        return [one["uid"] for one in await owners()] == [made["metadata"]["uid"], "theirs"]

    await eventually(again)


async def test_check_without_parameters_is_pending_as_inactive(cluster: Cluster) -> None:
    gone = await cluster.kube.get(kinds.PROVISIONING_REQUEST_CONFIG, None, "scale-up")
    await cluster.kube.delete(kinds.PROVISIONING_REQUEST_CONFIG, None, "scale-up")
    await cluster.bus.publish(
        observed_object(kinds.PROVISIONING_REQUEST_CONFIG, gone, deleted=True)
    )
    await cluster.reserve()
    await cluster.until("Pending", INACTIVE)
