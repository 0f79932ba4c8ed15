"""What is remembered of objects is bounded in bytes over all kinds, not in objects."""

from typing import Any

from shared.contracts.kube.kinds import Object
from shared.integrations.remembered import BYTES_MAX, OBJECTS_MAX, Remembered, bytes_of


def large(version: int, entries: int = 80_000) -> Object:
    env = [{"name": f"E{n}"} for n in range(entries)]
    return {"metadata": {"resourceVersion": str(version)}, "spec": {"env": env}}


def test_versions_of_a_large_object_are_not_all_kept() -> None:
    known, asker, versions = Remembered(), object(), [large(n) for n in range(4)]
    for n, obj in enumerate(versions):
        known.put(asker, obj, n, f"view {n}")
        assert known.bytes <= BYTES_MAX or len(known) == 1
    assert known.get(asker, versions[-1], 3) == "view 3"
    assert known.get(asker, versions[0], 0) is None


def test_small_objects_stay_beside_each_other() -> None:
    known, asker = Remembered(), object()
    objects = [large(n, 10) for n in range(OBJECTS_MAX + 9)]
    for n, obj in enumerate(objects):
        known.put(asker, obj, n, n)
    assert len(known) == OBJECTS_MAX
    assert known.bytes == sum(bytes_of(obj) for obj in objects[9:])
    assert known.get(asker, objects[-9], OBJECTS_MAX) == OBJECTS_MAX


def test_object_is_known_by_identity_version_and_asker() -> None:
    known, asker = Remembered(), object()
    obj: dict[str, Any] = {"a": 1}
    known.put(asker, obj, "1", "view")
    assert known.get(asker, dict(obj), "1") is None
    assert known.get(asker, obj, "2") is None
    assert known.get(object(), obj, "1") is None
    known.put(asker, obj, "2", "newer")
    assert (len(known), known.get(asker, obj, "2")) == (1, "newer")


def test_object_that_cannot_be_measured_counts_as_a_large_one() -> None:
    deep: list[Any] = []
    for _ in range(1_000):
        deep = [deep]
    assert bytes_of({"deep": deep}) == bytes_of({"number": 2**70}) == BYTES_MAX


def test_answer_of_a_deleted_asker_is_given_to_no_other() -> None:
    class Asker:
        pass

    remembered, obj = Remembered(), {"metadata": {"resourceVersion": "1"}}
    remembered.put(Asker(), obj, "1", "an old document's")
    others = [Asker() for _ in range(1_000)]  # One of them may be where it was.
    assert {remembered.get(other, obj, "1") for other in others} == {None}
