"""Counts requests as an API server does, for whoever asks `/metrics`."""

from collections import Counter
from typing import Final

from services.simulator.http.requests import Query, Target

__all__ = ["RequestCounter"]

_NAME: Final = "apiserver_request_total"
_HELP: Final = f"# HELP {_NAME} Requests by verb, resource, subresource and status code.\n"


class RequestCounter:
    """How many requests of each kind were answered, under the name and labels of a real server."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str, int]] = Counter()

    def answered(self, method: str, query: Query, target: Target, code: int) -> None:
        """One more request was answered."""
        verb = method
        if method == "GET" and not target.name:
            verb = "WATCH" if query.flag("watch") else "LIST"
        self._counts[verb, target.kind.plural, target.subresource, code] += 1

    def text(self) -> bytes:
        """All counts, in the text format of Prometheus."""
        lines = [
            f'{_NAME}{{code="{code}",resource="{resource}",subresource="{sub}",verb="{verb}"}} {n}\n'
            for (verb, resource, sub, code), n in sorted(self._counts.items())
        ]
        return "".join([_HELP, f"# TYPE {_NAME} counter\n", *lines]).encode()
