"""References equal the bare tuples of their fields."""

from datetime import UTC, datetime

from shared.contracts.messages.observed import Observed
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.refs import ObjectRef, WorkloadRef

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def test_workload_ref_equals_and_hashes_like_its_tuple() -> None:
    ref = WorkloadRef(cluster="hub", namespace="team-a", name="job-x")

    assert ref == ("hub", "team-a", "job-x")
    assert hash(ref) == hash(("hub", "team-a", "job-x"))
    assert ref.path == "team-a/job-x"


def test_outcome_names_the_workload_it_is_about() -> None:
    outcome = Outcome(
        cluster="hub",
        namespace="team-a",
        name="job-x",
        uid="u",
        result="applied",
        action="release",
        term=1,
        number=1,
        at=NOW,
    )

    assert outcome.ref == WorkloadRef("hub", "team-a", "job-x")


def test_cluster_scoped_object_has_no_namespace_in_its_ref() -> None:
    observed = Observed(
        cluster="hub",
        group="",
        version="v1",
        plural="nodes",
        kind="Node",
        name="n1",
        uid="u",
        resource_version="1",
    )

    assert observed.ref == ObjectRef("hub", "Node", None, "n1")
