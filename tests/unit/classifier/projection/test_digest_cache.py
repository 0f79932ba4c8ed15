"""The cache of resolved pod sets stays within its bytes, whatever a tenant writes."""

from services.classifier.projection.pods.digest_cache import BYTES_MAX, TEXT_BYTES_MAX, DigestCache


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
