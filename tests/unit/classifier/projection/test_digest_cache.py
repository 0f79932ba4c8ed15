"""The cache of resolved pod sets stays within its bytes, whatever a tenant writes."""

from services.classifier.projection.cluster_objects import ClusterObjects
from services.classifier.projection.pods.digest_cache import BYTES_MAX, TEXT_BYTES_MAX, DigestCache
from services.classifier.projection.policy import DEFAULT_POLICY
from services.classifier.projection.project import pod_sets_of
from shared.contracts.kube import names
from shared.contracts.kube.bodies import as_body
from shared.integrations import JOB
from tests.unit.classifier.projection.objects import Json, job


def test_many_texts_stay_within_bytes_and_entries() -> None:
    cache = DigestCache(entries_max=50, bytes_max=10_000)
    for number in range(300):
        cache.put(f"{number}".encode() * 100, number)
    assert cache.size <= 10_000
    assert len(cache) <= 50
    assert cache.get(b"299" * 100) == 299


def test_large_text_is_not_kept() -> None:
    cache = DigestCache()
    cache.put(b"x" * (TEXT_BYTES_MAX + 1), "result")
    assert (len(cache), cache.size) == (0, 0)


def test_least_recently_used_text_is_dropped_first() -> None:
    cache = DigestCache(entries_max=2)
    cache.put(b"a", 1)
    cache.put(b"b", 2)
    assert cache.get(b"a") == 1
    cache.put(b"c", 3)
    assert [cache.get(text) for text in (b"a", b"b", b"c")] == [1, None, 3]


def test_repeated_text_counts_once_and_clear_forgets_all() -> None:
    cache = DigestCache()
    cache.put(b"abc", 1)
    cache.put(b"abc", 2)
    assert (cache.size, cache.get(b"abc")) == (3, 2)
    cache.clear()
    assert (len(cache), cache.size) == (0, 0)
    assert BYTES_MAX <= 16 * 2**20


def labelled(number: int, cpu: str = "1") -> Json:
    """A Job as its controller leaves it: its pods carry its name and its uid."""
    made = job(f"job-{number}", uid=f"u-{number}")
    template = made["spec"]["template"]
    template["metadata"] = {"labels": {names.CONTROLLER_UID: f"u-{number}", "job-name": number}}
    template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return made


def test_jobs_that_differ_in_the_labels_of_their_pods_are_resolved_once() -> None:
    known = ClusterObjects()
    one, alike, other = (
        pod_sets_of(as_body(labelled(number, cpu)), JOB, known, DEFAULT_POLICY)
        for number, cpu in ((1, "1"), (2, "1"), (3, "2"))
    )
    assert one is not None
    assert one == alike != other
    assert len(known.pod_sets_cache) == 2
