"""What quota keeps of a cluster that nobody has listed yet."""

from services.quota.decider import Decider
from services.quota.settings import QuotaSettings
from shared.contracts.kube import kinds
from shared.contracts.messages.observed import Observed, Synced
from shared.testing.builders import observed_object
from tests.fuzz.messages import NOON


def namespace(version: int) -> Observed:
    metadata = {
        "name": "team",
        "uid": "u",
        "resourceVersion": str(version),
        "labels": {"version": str(version)},
    }
    return observed_object(kinds.NAMESPACE, {"metadata": metadata}, cluster="east")


def test_object_that_is_written_again_and_again_is_kept_once() -> None:
    decider = Decider(QuotaSettings(cluster="hub"))
    for version in range(100):
        decider.apply(namespace(version))
    [fact] = decider._unlisted.pop("east")
    assert getattr(fact, "labels", None) == {"version": "99"}


def test_last_state_of_an_object_counts_once_its_cluster_is_listed() -> None:
    decider = Decider(QuotaSettings(cluster="hub"))
    decider.apply(namespace(1))
    decider.apply(namespace(2).ended())
    decider.apply(Synced(cluster="east", epoch="1", kinds=[], at=NOON))
    assert decider._unlisted.pop("east") == []
    assert list(decider.decide(NOON)) == []
