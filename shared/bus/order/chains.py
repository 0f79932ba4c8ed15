"""Fenced messages that follow each other before the first of them is acknowledged.

A predicted sequence says how many messages the log has, not which:

1. A leader sends decisions that predict the sequences 5, 6 and 7.
2. A message of somebody else takes sequence 5: the server refuses the first decision.
3. The other two find what they predict. They would be stored without the one on which they build.

Therefore each also names the message before it, by its `Nats-Msg-Id`, as long as that one is on its way.
Once that one is stored, at the predicted sequence, nothing else can be the last message there.
"""

from shared.bus import headers as wire
from shared.bus.order.receipts import Receipt


class Link:
    """One fenced message, as the one behind it sees it."""

    def __init__(self, headers: dict[str, str], done: Receipt, before: "Link | None") -> None:
        """`headers`: those that are sent; an id in them may change. `before`: None where there is none."""
        self.expected = int(headers[wire.EXPECT_LAST])
        self._headers = headers
        self._done = done
        self._before = before
        self._stored: bool | None = None
        """None: it is on its way."""

    @property
    def is_open(self) -> bool:
        """Whether a message that is published now may still build on it: its result was not returned yet."""
        if self._stored is None:
            return True
        return not (self._stored or self._done.seen or self._done.cancelled())

    def settle(self, *, stored: bool) -> None:
        """Remember how it ended."""
        self._stored = stored
        self._before = None

    def prepare(self) -> bool:
        """Name the message before it in the headers; return False if that one has failed.

        Only on one server, where a message also carries the fence by its term. Of several servers each
        compares ids when it applies a message, by what it remembers: one that has caught up, or was
        started again, remembers none, and would refuse what the others store (nats-server 2.15:
        `processJetStreamMsg`, `processCatchupMsg`).
        """
        self._headers.pop(wire.EXPECT_ID, None)
        before = self._before
        if before is None:
            return True
        if before._stored is None and wire.EXPECT_SUBJECT_OF in self._headers:  # noqa: SLF001
            self._headers[wire.EXPECT_ID] = before._headers[wire.MESSAGE_ID]  # noqa: SLF001
        return before._stored is not False  # noqa: SLF001


class Chains:
    """The last fenced message of each log."""

    def __init__(self) -> None:
        self._last: dict[str, Link] = {}

    def add(self, stream: str, headers: dict[str, str], done: Receipt) -> Link:
        """Return the link of a fenced message that is about to be queued."""
        last = self._last.get(stream)
        expected = int(headers[wire.EXPECT_LAST])
        builds_on_last = last is not None and last.is_open and last.expected + 1 == expected
        link = Link(headers, done, last if builds_on_last else None)
        self._last[stream] = link
        return link
