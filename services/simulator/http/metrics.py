"""Request counts at `/metrics`, with the names and labels of a real API server."""

from collections import Counter
from typing import Final

from services.simulator.http.requests import Query, Target

_NAME: Final = "apiserver_request_total"
_HELP: Final = f"# HELP {_NAME} Requests by verb, resource, subresource and status code.\n"


class RequestCounter:
    """Counts answered requests by verb, resource and status code."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str, int]] = Counter()

    def answered(self, method: str, query: Query, target: Target, code: int) -> None:
        """Count one answered request."""
        verb = method
        if method == "GET" and not target.name:
            verb = "WATCH" if query.flag("watch") else "LIST"
        self._counts[verb, target.kind.plural, target.subresource, code] += 1

    def text(self) -> bytes:
        """Return all counts in Prometheus' text format."""
        lines = [
            f'{_NAME}{{code="{code}",resource="{resource}",subresource="{sub}",verb="{verb}"}} {n}\n'
            for (verb, resource, sub, code), n in sorted(self._counts.items())
        ]
        return "".join([_HELP, f"# TYPE {_NAME} counter\n", *lines]).encode()
