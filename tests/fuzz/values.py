"""Near-valid input: a whole object or text of which some parts are broken."""

import copy
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from hypothesis import strategies as st

Path = tuple[str | int, ...]
Strategy = st.SearchStrategy[Any]

LONE_SURROGATE: Final = "a\ud800b"
DIGITS: Final = "٣٤"
"""Digits of another script: `str.isdigit` takes them, Kubernetes does not."""


def nested(levels: int, *, mapping: bool = False) -> Any:
    """A list in a list in a list, or a mapping."""
    value: Any = 1
    for _ in range(levels):
        value = {"a": value} if mapping else [value]
    return value


ODD: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**40, 10**4400, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), float("-inf"), "", " ", "0", "-1", "1e9", "9" * 30, "9" * 5000, "1_0",
    DIGITS, "٣m", "NaN", "Infinity", "true", "null", "x" * 70, "x" * 300, "x" * 70_000, "a\0b", "\0",
    LONE_SURROGATE, "é", "ключ", "😀" * 80, "a.b.c", "*", ">", "a.>", "../../etc/passwd", "%s{0}%n",
    "${a}", "a\nb", "a\r\nb: c", "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z",
    "2026-13-45T99:99:99Z", "2026-01-01T00:00:00", "2026-01-01", "-P1D", "1" + "0" * 400, "12e999", "1e-999",
    [], {}, [None], [[]], [{}], {"": None}, {"a": None}, {"name": None}, {"name": []}, [0], ["a"],
    ["a"] * 300, [{"name": "a"}, {"name": "a"}], {"a": {"b": []}}, {"\0": 1}, {LONE_SURROGATE: "x"},
    lambda: nested(60), lambda: nested(60, mapping=True), lambda: nested(600),
    lambda: nested(600, mapping=True),
)  # fmt: skip
"""Values that some parser somewhere does not expect, or what makes them; random values seldom are such."""


def _fresh(index: int) -> Any:
    """A value of `ODD` that nobody else changes."""
    value = ODD[index]
    return value() if callable(value) else copy.copy(value)


_ODD_VALUES: Final = st.one_of(
    st.integers(0, len(ODD) - 1).map(_fresh),
    st.integers(0, len(ODD) - 1).map(_fresh),
    st.text(max_size=20),
    st.integers(),
    st.floats(),
)

_WAYS: Final = ("replace", "replace", "replace", "drop", "double", "wrap", "add", "rename")

_BREAKS: Final = st.lists(
    st.tuples(st.integers(0, 10_000), st.sampled_from(_WAYS), _ODD_VALUES), max_size=3
)


def broken(*samples: Any) -> Strategy:
    """One of the samples, of which up to three parts are broken."""
    texts = [json.dumps(sample) for sample in samples]
    paths = [list(_paths(sample)) for sample in samples]

    def build(drawn: tuple[int, list[tuple[int, str, Any]]]) -> Any:
        which, breaks = drawn
        root = {"": json.loads(texts[which])}
        for number, way, value in breaks:
            path = paths[which][number % len(paths[which])]
            _break(root, path, way, value)
        return root.get("")

    return st.tuples(st.integers(0, len(samples) - 1), _BREAKS).map(build)


LONG: Final = 4_000
"""Items of a long list: what is quadratic in them takes seconds, what is linear milliseconds."""

_ITEMS: Final[Sequence[Callable[[int], Any]]] = (
    lambda _: {}, lambda _: None, lambda n: n, lambda n: f"a{n}", lambda _: "a", lambda _: [],
    lambda n: {"name": f"a{n}"}, lambda _: {"name": "a"}, lambda n: {"name": f"a{n}", "value": "1"},
    lambda n: {"type": f"A{n}", "status": "True"}, lambda n: {"key": f"a{n}", "operator": "Exists"},
)  # fmt: skip
_ITEM_BYTES_MAX: Final = 60


def long(sample: Any) -> Strategy:
    """The sample, of which one part is a list or a map of thousands of small things, or a long text."""
    text, paths = json.dumps(sample), [path for path in _paths(sample) if len(path) > 1]

    def build(drawn: tuple[int, str, int]) -> Any:
        number, way, item = drawn
        root = {"": json.loads(text)}
        path = paths[number % len(paths)]
        *above, last = path
        parent: Any = root
        for step in above:
            parent = parent[step]
        parent[last] = _lengthened(parent[last], way, _ITEMS[item])
        return root[""]

    ways = st.sampled_from(["more", "more", "list", "map", "text"])
    return st.tuples(st.integers(0, 10_000), ways, st.integers(0, len(_ITEMS) - 1)).map(build)


def _lengthened(value: Any, way: str, item: Callable[[int], Any]) -> Any:
    if way == "text":
        return ("1" if isinstance(value, int) else str(value)[:4] or "a") * LONG
    if way == "map" or (way == "more" and isinstance(value, dict)):
        return {**value, **_many(item)} if isinstance(value, dict) else _many(item)
    if way == "more" and isinstance(value, list) and value:
        first = json.dumps(value[0])
        if len(first) <= _ITEM_BYTES_MAX:
            return [*value, *(json.loads(first) for _ in range(LONG))]
    return [*(value if isinstance(value, list) else ()), *(item(n) for n in range(LONG))]


def _many(item: Callable[[int], Any]) -> dict[str, Any]:
    return {f"k{n}": item(n) for n in range(LONG)}


def _paths(value: Any, here: Path = ("",)) -> Iterator[Path]:
    yield here
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _paths(item, (*here, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _paths(item, (*here, index))


def _break(root: Any, path: Path, way: str, value: Any) -> None:
    """Break the part at `path`; nothing if an earlier break took it away."""
    *above, last = path
    parent = root
    try:
        for step in above:
            parent = parent[step]
        before = parent[last]
        if way == "replace":
            parent[last] = value
        elif way == "drop":
            del parent[last]
        elif way == "wrap":
            parent[last] = [before]
        elif way == "double" and isinstance(before, list):
            before.extend(before[:50])
        elif way == "add" and isinstance(before, dict):
            before[value if isinstance(value, str) else "extra"] = value
        elif way == "rename" and isinstance(parent, dict):
            parent[value if isinstance(value, str) else "renamed"] = parent.pop(last)
    except (KeyError, IndexError, TypeError):
        return


def written(value: Any) -> bytes:
    """JSON as Python writes it: with NaN, lone surrogates as escapes, integers of any length."""
    digits = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(value).encode()
    finally:
        sys.set_int_max_str_digits(digits)


def _cut(data: bytes, at: int) -> bytes:
    return data[: at % (len(data) + 1)]


_TEXT_BREAKS: Final[Sequence[Callable[[bytes, int], bytes]]] = (
    _cut,
    lambda data, at: data[: at % (len(data) + 1)] + b"\0" + data[at % (len(data) + 1) :],
    lambda data, at: data[: at % (len(data) + 1)] + b"\xff\xfe" + data[at % (len(data) + 1) :],
    lambda data, _: b"\xef\xbb\xbf" + data,
    lambda data, _: data + data,
    lambda data, _: data.replace(b'":', b'": 1, "x":', 1),
    lambda data, _: data[:-1] + b"," + data[1:],  # Every key of the top twice.
    lambda data, _: data[:-1] + b',"metadata":{"name":"b"},"metadata":[]}',
    lambda data, at: data.replace(b"1", b"1" * (5000 if at % 2 else 30)),
    lambda data, _: data.replace(b"null", b"NaN"),
    lambda data, _: data.replace(b"true", b"-Infinity"),
    lambda data, _: data.decode(errors="replace").encode("utf-16"),
    lambda _, at: b"[" * (1_000 + at * 10),
    lambda _, at: b'{"a":' * (1_000 + at * 10),
    lambda data, at: data + b" " * at * 10,
)


def texts(*samples: Any) -> Strategy:
    """The bytes of near-valid JSON; of each third one the text itself is broken."""
    breaks = st.one_of(
        st.none(), st.none(), st.tuples(st.sampled_from(_TEXT_BREAKS), st.integers(0, 10_000))
    )

    def build(drawn: tuple[Any, Any]) -> bytes:
        value, how = drawn
        data = written(value)
        return data if how is None else how[0](data, how[1])

    return st.one_of(
        st.tuples(broken(*samples), breaks).map(build),
        st.tuples(broken(*samples), breaks).map(build),
        st.tuples(broken(*samples), breaks).map(build),
        st.binary(max_size=200),
    )


def strings(*samples: str) -> Strategy:
    """Words of a small language: samples, parts of them put together anew, and anything."""
    parts = sorted({part for sample in samples for part in _parts(sample)})
    odd = [value for value in ODD if isinstance(value, str)]
    piece = st.one_of(
        st.sampled_from(parts), st.sampled_from(parts), st.sampled_from(odd), st.text(max_size=6)
    )
    return st.one_of(
        st.lists(piece, max_size=12).map("".join),
        st.sampled_from(samples),
        st.sampled_from(odd),
        st.text(),
    )


def _parts(sample: str) -> Iterator[str]:
    """The sample cut at each change between letters, digits and signs."""
    part = ""
    for char in sample:
        if part and (char.isalnum() != part[-1].isalnum() or char.isdigit() != part[-1].isdigit()):
            yield part
            part = ""
        part += char
    if part:
        yield part
