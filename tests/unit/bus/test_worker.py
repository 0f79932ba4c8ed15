"""The policy of durable work, where no server is needed to see it."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.bus.port import Entry
from shared.bus.worker import DEAD_BODY_MAX, backoff_seconds, dead_letter
from shared.contracts.subjects import SUBJECT_BYTES_MAX
from tests.contract.bus.stage import AT


def entry(data: bytes, subject: str = "sluice.workload.hub.a.b") -> Entry:
    return Entry(subject=subject, data=data, headers={}, sequence=7, time=AT)


@given(st.integers(min_value=1, max_value=10**9), st.integers())
def test_the_pause_grows_to_a_minute_and_not_beyond(deliveries: int, seed: int) -> None:
    pause = backoff_seconds(deliveries, Random(seed))

    assert 0.18 < pause <= 60.0
    if deliveries >= 10:
        assert pause >= 45.0


def test_the_pause_doubles() -> None:
    whole = [max(backoff_seconds(n, Random(seed)) for seed in range(200)) for n in range(1, 9)]

    for one, next_ in pairwise(whole):
        assert next_ / one == pytest.approx(2.0, rel=0.05)


@given(st.binary(max_size=500))
def test_any_body_becomes_a_letter_that_can_be_sent(data: bytes) -> None:
    letter = dead_letter("patcher", entry(data), "because", AT)

    assert type(letter).decode(letter.encode()) == letter
    if letter.encoding == "utf-8":
        assert letter.body.encode() == data


def test_a_large_body_is_cut_and_says_so() -> None:
    letter = dead_letter("patcher", entry(b"\xff" * 1_000_000), "x" * 100_000, AT)

    assert letter.encoding == "base64"
    assert f"cut at {DEAD_BODY_MAX}" in letter.reason
    assert len(letter.encode()) < 100_000


def test_the_subject_of_a_letter_is_bounded() -> None:
    longest = "sluice.workload." + "x" * (SUBJECT_BYTES_MAX - 16)

    letter = dead_letter("s" * 60, entry(b"", longest), "because", AT)

    assert len(letter.subject) < 3000
