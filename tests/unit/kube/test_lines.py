"""Lines come out whole, however the network cuts them."""

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kube.lines import LINE_BYTES_MAX, lines
from shared.kube.port import UnavailableError


async def pieces_of(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def read(pieces: list[bytes]) -> list[bytes]:
    return [line async for line in lines(pieces_of(pieces), what="watch")]


texts = st.lists(st.binary(min_size=1, max_size=9).filter(lambda b: b"\n" not in b), max_size=6)


@given(texts, st.lists(st.integers(0, 60), max_size=8))
async def test_chunk_boundaries_do_not_change_lines(texts: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(text + b"\n" for text in texts)
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    pieces = [whole[a:b] for a, b in pairwise(places)]
    assert await read(pieces) == texts


async def test_blank_lines_are_skipped() -> None:
    assert await read([b"\n\na\n\n"]) == [b"a"]


async def test_last_line_without_newline_is_an_outage() -> None:
    with pytest.raises(UnavailableError, match="broken off"):
        await read([b"a\nb"])


async def test_endless_line_is_refused() -> None:
    with pytest.raises(UnavailableError, match="more than"):
        await read([b"x" * (1 << 20)] * ((LINE_BYTES_MAX >> 20) + 1))
