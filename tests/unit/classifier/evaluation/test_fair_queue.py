"""Whoever had least time is next: first among addresses, then among the namespaces of one."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.classifier.evaluation.fair_queue import REMEMBERED_MAX, FairQueue, Source


def served(queue: FairQueue[str], seconds: dict[str, float], number: int) -> list[str]:
    """Serve so many items, each of which takes the seconds of its name, and return their names."""
    names = []
    for _ in range(number):
        source, name = queue.pop()
        queue.charge(source, seconds.get(name, 1.0))
        names.append(name)
    return names


def waiting(*of: tuple[str, str, str, int]) -> FairQueue[str]:
    queue = FairQueue[str]()
    for address, namespace, name, number in of:
        for _ in range(number):
            queue.push(Source(address, namespace), name)
    return queue


def test_items_of_one_source_keep_their_order() -> None:
    queue = FairQueue[int]()
    for number in range(5):
        queue.push(Source("a", "n"), number)
    assert [queue.pop()[1] for _ in range(5)] == [0, 1, 2, 3, 4]
    assert not queue


def test_namespaces_of_an_address_take_turns() -> None:
    queue = waiting(("a", "greedy", "g", 20), ("a", "honest", "h", 3))
    assert served(queue, {}, 6) == ["g", "h", "g", "h", "g", "h"]


def test_costly_items_of_one_namespace_wait_for_cheap_ones_of_another() -> None:
    queue = waiting(("a", "greedy", "g", 20), ("a", "honest", "h", 10))
    assert served(queue, {"h": 0.05}, 11) == ["g", *"h" * 10]


def test_made_up_namespaces_share_with_their_address_alone() -> None:
    strangers = [("stranger", f"n{number}", "s", 1) for number in range(50)]
    queue = waiting(*strangers, ("server", "honest", "h", 5))
    assert Counter(served(queue, {}, 10)) == {"s": 5, "h": 5}


def test_source_that_starts_later_gets_an_equal_share_at_once() -> None:
    queue = waiting(("a", "first", "f", 40))
    served(queue, {}, 10)
    for _ in range(10):
        queue.push(Source("a", "second"), "s")
    assert Counter(served(queue, {}, 10)) == {"f": 5, "s": 5}


def test_time_used_is_forgotten_when_the_queue_is_empty() -> None:
    queue = waiting(("a", "first", "f", 9))
    served(queue, {}, 9)
    for name in ("first", "second"):
        for _ in range(2):
            queue.push(Source("a", name), name)
    assert served(queue, {}, 2) == ["first", "second"]


def test_time_of_many_sources_is_bounded() -> None:
    queue = waiting(("a", "stays", "s", 1))
    for number in range(3 * REMEMBERED_MAX):
        queue.push(Source("a", f"n{number}"), "x")
        queue.charge(Source("a", f"n{number}"), 1.0)
        queue.remove(Source("a", f"n{number}"), "x")
    assert len(queue._had) <= REMEMBERED_MAX + 3


sources = st.builds(Source, st.sampled_from("ab"), st.sampled_from("xyz"))


@given(st.lists(st.tuples(sources, st.sampled_from(["push", "pop", "remove"])), max_size=60))
def test_each_item_leaves_once(steps: list[tuple[Source, str]]) -> None:
    queue, inside, left = FairQueue[int](), dict[int, Source](), list[int]()
    for number, (source, step) in enumerate(steps):
        if step == "push":
            queue.push(source, number)
            inside[number] = source
        elif step == "remove" and inside:
            gone, of = next(iter(inside.items()))
            queue.remove(of, gone)
            del inside[gone]
        elif inside:
            of, item = queue.pop()
            assert inside.pop(item) == of
            left.append(item)
    assert bool(queue) == bool(inside)
    assert sorted(item for of in set(inside.values()) for item in queue.of(of)) == sorted(inside)
    assert len(left) == len(set(left))


@pytest.mark.parametrize("source", [Source("a", "n"), Source("b", "n")])
def test_what_has_left_may_be_removed_again(source: Source) -> None:
    queue = waiting(("a", "n", "x", 1))
    queue.pop()
    queue.remove(source, "x")
    assert list(queue.of(source)) == []
