"""Borders of the console: the messages that its view reads, and the parameters of what it is asked."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlencode

from hypothesis import strategies as st

from services.console.http.handlers import console_app
from services.console.pages.service import PageService
from services.console.query_service import QueryService
from services.whatif.inputs import OBSERVED_KINDS
from shared.bus.port import Entry
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.base import Message
from shared.contracts.messages.checks import CheckState
from shared.contracts.messages.outcomes import Outcome
from shared.contracts.messages.queues import QueueStatus
from shared.contracts.messages.workloads import WorkloadState
from shared.testing.builders import observed_object
from tests.fuzz import objects
from tests.fuzz.border import Border
from tests.fuzz.kubernetes import observations
from tests.fuzz.messages import addressed, sample
from tests.fuzz.values import ODD, strings, texts
from tests.unit.console.people import People
from tests.unit.console.stage import Stage, play
from tests.unit.console.test_http import ask

_TYPES: Final[Mapping[str, type[Message]]] = {
    "workload": WorkloadState, "admission": Admission, "check": CheckState, "outcome": Outcome,
    "queue": QueueStatus,
}  # fmt: skip
_API: Final = "/api/v1"
_ABOUT: Final = f"{_API}/namespaces/team-a/workloads/job-train-3f2a1"
_ROUTES: Final = (
    f"{_API}/queues", f"{_API}/workloads", f"{_ABOUT}/explain", f"{_ABOUT}/timeline",
    f"{_API}/trends", f"{_API}/flavors", f"{_API}/spokes", f"{_API}/machines", f"{_API}/events",
    "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/team/pendingworkloads",
    "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/team-a/localqueues/main/pendingworkloads",
)  # fmt: skip
_RIGHTS: Final = (
    "list workloads", "list clusterqueues", "list localqueues", "get clusterqueues",
    "list resourceflavors", "list multikueueclusters", "get clusterqueues/pendingworkloads",
    "get localqueues/pendingworkloads",
)  # fmt: skip
_USER: Final = {"authorization": "Bearer dana"}
_FAILED: Final = 500


async def _answer(stage: Stage, paths: tuple[str, ...], headers: dict[str, str] = _USER) -> None:
    """Ask each path. Raises if the console has no answer, which it logs with a traceback."""
    queries = QueryService(view=stage.view, access=People(dana=_RIGHTS))
    pages = PageService(queries=queries, bus=stage.bus)
    app = console_app(queries, pages, streams_max=9, local_only=False)
    for path in paths:
        answer = await ask(app, path, headers)
        assert answer.code not in {0, _FAILED}, f"{path}: {answer.code}: {answer.body[:200]!r}"


def _read(entries: list[Entry]) -> None:
    """Have the view read messages beside sound ones, then ask for everything."""

    async def scene(stage: Stage) -> None:
        await stage.start()
        for kind, samples in objects.ALL.items():
            if kind in OBSERVED_KINDS:
                await stage.others.publish(observed_object(kind, samples[0]))
        for name, type_ in _TYPES.items():
            await stage.others.publish(type_.model_validate(sample(name)))
        await stage.basics()
        for entry in entries:
            stage.server.publish(entry.subject, entry.data, entry.headers)
        await stage.say()
        await _answer(stage, _ROUTES)

    play(scene, idle_seconds=600.0)


def _message(kind: type[Message], subject: str, data: bytes) -> None:
    """What cannot be read has the subject of the sample."""
    entry = addressed(kind, data)
    _read([entry if entry.subject.count(".") > 1 else replace(entry, subject=subject)])


def _ask(asked: tuple[str, dict[str, str], dict[str, str]]) -> None:
    path, parameters, headers = asked
    query = urlencode(parameters, errors="replace")

    async def scene(stage: Stage) -> None:
        await stage.basics()
        await stage.start()
        found = {
            name: text.encode(errors="replace").decode("latin-1") for name, text in headers.items()
        }
        await _answer(stage, (f"{path}?{query}",), {**_USER, **found})

    play(scene, idle_seconds=600.0)


_WORDS: Final = st.one_of(
    st.sampled_from([value for value in ODD if isinstance(value, str)]),
    strings("team-a", "job-train-3f2a1", "24h", "1", "true", "v1beta2", "main", "hub"),
)


def _path(parts: tuple[str, str, str]) -> str:
    """A path with names of anybody's choice, as a server hands it on: decoded, without a query."""
    route, first, second = parts
    found = route.partition("?")[0].split("/")
    names = [text.encode(errors="replace").decode() for text in (first, second)]
    places = [
        n
        for n, step in enumerate(found)
        if step in {"team-a", "job-train-3f2a1", "team", "main", "v1beta2"}
    ]
    for place, name in zip(places, names, strict=False):
        found[place] = quote(name, safe="").replace("%", "") if "?" in name else name
    return "/".join(found)


_ASKED: Final = st.tuples(
    st.tuples(st.sampled_from(_ROUTES), _WORDS, _WORDS).map(_path),
    st.dictionaries(
        st.sampled_from(["limit", "offset", "namespace", "cluster", "forecast", "span", "x"]),
        _WORDS, max_size=4,
    ),
    st.dictionaries(
        st.sampled_from(["host", "authorization", "accept", "last-event-id"]), _WORDS, max_size=2
    ),
)  # fmt: skip


def _observed(kind: Kind) -> st.SearchStrategy[Any]:
    return observations(kind).map(lambda entry: [entry])


def borders() -> Iterator[Border]:
    """Each message and each kind that the view reads; then what is asked."""
    for what, kind in _TYPES.items():
        yield Border(
            name=f"console: message {what}", strategy=texts(sample(what)), weight=0.1,
            call=partial(_message, kind, kind.model_validate(sample(what)).subject),
        )  # fmt: skip
    yield Border(
        name="console: objects", weight=0.3, call=_read,
        strategy=st.one_of(*(_observed(each) for each in OBSERVED_KINDS if each in objects.ALL)),
    )  # fmt: skip
    yield Border(name="console: parameters of a question", strategy=_ASKED, call=_ask, weight=0.2)
