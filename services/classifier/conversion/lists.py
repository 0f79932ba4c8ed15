"""Finds the objects of a ConversionReview without reading all of them at once.

What is read of a list takes fifteen times the memory of its text: a list of 128 MiB would take 2 GiB.
"""

import json
from collections.abc import Iterator
from typing import Final

_SPACE: Final = b" \t\n\r"
_WINDOW_BYTES: Final = 64 * 1024
"""In which the end of a value is looked for first."""

_NUMBER: Final = "+-.eE0123456789"
_DECODER: Final = json.JSONDecoder()

Span = tuple[int, int]
"""Where a value begins and ends in the body."""


def split(body: bytes) -> tuple[bytes, list[Span]]:
    """Return the review without its `request.objects`, and where each of them is.

    The review is returned whole if it has no such list. Raises `ValueError` for what is no JSON.
    """
    cursor = _Cursor(body)
    if cursor.find("request") and cursor.find("objects") and cursor.next_is(b"["):
        begin = cursor.at
        found = list(cursor.items())
        return body[:begin] + b"[]" + body[cursor.at :], found
    return body, []


def first_namespace(body: bytes) -> str:
    """Return the namespace of the first object; empty if it has none, or is not at the beginning.

    An author may call an annotation `namespace`, too: it is looked for where it is.
    """
    cursor = _Cursor(body[:_WINDOW_BYTES])
    try:
        if not (cursor.find("request") and cursor.find("objects") and cursor.next_is(b"[")):
            return ""
        cursor.at += 1
        found = cursor.find("metadata") and cursor.find("namespace")
        return str(json.loads(cursor.value())) if found else ""
    except (ValueError, RecursionError):
        return ""


class _Cursor:
    """A place in a JSON text. Values that are not converted are skipped."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._window = ""
        """Characters of the body, in which values are looked for."""

        self._window_at = 0
        self.at = 0

    def next_is(self, character: bytes) -> bool:
        """Whether the next character that is no space is this one."""
        self._skip_space()
        return self._body[self.at : self.at + 1] == character

    def find(self, name: str) -> bool:
        """Step to the value of that member of the object that begins here; False: it has none."""
        wanted = f'"{name}"'.encode()
        return any(
            self._body[begin:end] == wanted for begin, end in self._listed(b"{", b"}", named=True)
        )

    def value(self) -> bytes:
        """Step over the value that begins here, and return it as it is written."""
        begin, end = self._value()
        return self._body[begin:end]

    def items(self) -> Iterator[Span]:
        """Yield each item of the list that begins here."""
        yield from self._listed(b"[", b"]", named=False)

    def _listed(self, opens: bytes, closes: bytes, *, named: bool) -> Iterator[Span]:
        if not self.next_is(opens):
            return
        self.at += 1
        while not self.next_is(closes):
            span = self._value()
            if named:
                self._take(b":")
                self._skip_space()
                begin = self.at
                yield span
                if self.at == begin:
                    self._value()
            else:
                yield span
            if not self.next_is(closes):
                self._take(b",")
        self.at += 1

    def _take(self, character: bytes) -> None:
        if not self.next_is(character):
            raise ValueError(f"body: not JSON: no {character.decode()} at byte {self.at}")
        self.at += 1

    def _skip_space(self) -> None:
        while self._body[self.at : self.at + 1] in _SPACE and self.at < len(self._body):
            self.at += 1

    def _value(self) -> Span:
        """Step over one value."""
        self._skip_space()
        begin, size = self.at, 0
        while (length := self._length_in_window(begin)) is None:
            size = max(_WINDOW_BYTES, 4 * size)
            # As bytes, one character each: what has a meaning in JSON is ASCII.
            self._window = self._body[begin : begin + size].decode("latin-1")
            self._window_at = begin
        self.at = begin + length
        return begin, self.at

    def _length_in_window(self, begin: int) -> int | None:
        """Return how long the value is that begins there; None if its end is not in the window."""
        first, window_ends = begin - self._window_at, self._window_at + len(self._window)
        try:
            _, end = _DECODER.raw_decode(self._window, first)
        except json.JSONDecodeError as error:
            if first == 0 and window_ends >= len(self._body):
                raise ValueError(f"body: not JSON: {error.msg} at byte {begin}") from error
            return None
        # The end of a number looks like a number: `1` of `1E-2`.
        is_cut = not self._window[end:].strip(_NUMBER) and window_ends < len(self._body)
        return None if is_cut else end - first
