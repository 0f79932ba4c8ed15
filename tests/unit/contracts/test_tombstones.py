"""Which object a tombstone ends, where a name was used more than once."""

import pytest

from services.dispatcher.hub.jobs import HubJobs
from shared.contracts.kube import kinds
from shared.contracts.messages.observed import Observed
from shared.integrations import Integrations
from shared.testing.builders import observed


def tombstone(uid: str, version: str) -> Observed:
    return observed(
        kinds.JOB, "train", {}, "team", version=version, deleted=True, metadata={"uid": uid}
    )


@pytest.mark.parametrize(
    ("uid", "version", "ends"),
    [
        ("mine", "7", True),
        ("mine", "12", True),
        ("earlier", "9", False),
        ("another", "10", False),
        ("later", "11", True),
        ("later", "100", True),
        ("another", "opaque", False),
        ("another", "", False),
    ],
)
def test_tombstone_ends_its_object_and_those_before_it(uid: str, version: str, ends: bool) -> None:
    assert tombstone(uid, version).ends("mine", "10") is ends


@pytest.mark.parametrize(("version", "ends"), [("11", True), ("9", False)])
def test_dispatcher_forgets_a_job_by_the_tombstone_of_a_later_one(version: str, ends: bool) -> None:
    jobs = HubJobs(cluster="hub", nominations=False, integrations=Integrations())
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    metadata = {"uid": "mine", "resourceVersion": "10", "labels": labels}
    workload = jobs.observe(observed(kinds.JOB, "train", {}, "team", metadata=metadata))
    assert workload is not None
    assert (jobs.observe(tombstone("other", version)) == workload) is ends
    assert (jobs.job(workload, "mine") is None) is ends
