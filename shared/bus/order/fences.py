"""What a message expects of its log, so that the server refuses it from a writer that was replaced."""

from shared.bus import headers as wire
from shared.contracts.messages.admissions import Term
from shared.contracts.messages.base import Message


class Fences:
    """The fences of one bus. On one server they include the `Term` that this bus began (ADR 5)."""

    def __init__(self) -> None:
        self._terms: dict[str, dict[str, str]] = {}
        """Log to the headers that hold a fenced message to the term that this bus began."""

    def headers(
        self, message: Message, *, expect_last: int | None, expect_subject: int | None
    ) -> dict[str, str]:
        """The headers by which the server checks what `message` expects."""
        found: dict[str, str] = {}
        if isinstance(message, Term):
            self._terms.pop(message.stream, None)
        if expect_last is not None:
            found = {wire.EXPECT_LAST: str(expect_last), **self._terms.get(message.stream, {})}
        if expect_subject is not None:
            found[wire.EXPECT_SUBJECT] = str(expect_subject)
            found.pop(wire.EXPECT_SUBJECT_OF, None)
        return found

    def on_stored(self, term: Term, sequence: int | None) -> None:
        """Let a later term refuse what is still on its way under `term`; None: it was not stored.

        A predicted sequence alone does not: of a window that predicts 5, 6, 7 … the last are taken
        once a successor has written up to just there. On several servers such a second fence
        cannot be pipelined (10164), so do not call this there: readers drop what carries a lower term
        than one before it in the log.
        """
        if sequence is not None:
            self._terms[term.stream] = {
                wire.EXPECT_SUBJECT: str(sequence),
                wire.EXPECT_SUBJECT_OF: term.subject,
            }
