"""Reads the state before a change: from the streams, from a saved file, or from manifests."""

import gc
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import ValidationError

from services.quota.forecast import History, Snapshot
from services.quota.forecast.snapshot import SnapshotReader, finished_runs
from services.quota.wire.inbound import TranslateError, observed_facts
from services.whatif.changes import Changes
from services.whatif.inputs import OBSERVED_KINDS
from services.whatif.manifests import load_manifests
from shared.bus.stream_reader import StreamReader
from shared.contracts.messages.admissions import Admission
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.subjects import Stream, message_sort, observed_filter
from shared.runtime.command import CommandError, environment_error, unreadable, unwritable

HISTORY_SPAN: Final = timedelta(hours=24)
"""How far back run times are read if nothing else is asked for."""

LOG_PREFIX: Final = "log."
"""Prefix of the subject of messages that come from a log, not from a view."""

Json = dict[str, Any]
T = TypeVar("T")

LOCAL: Final = "local"
"""The cluster of objects that come from manifests."""


class RunId(NamedTuple):
    """One workload that was submitted: a later one of the same name has another uid."""

    cluster: str
    key: str
    """``<namespace>/<name>``."""

    uid: str

    @classmethod
    def of(cls, state: WorkloadState) -> "RunId":
        """The id of the workload that has this state."""
        return cls(state.cluster, f"{state.namespace}/{state.name}", state.uid)


@dataclass(slots=True, kw_only=True)
class LoadedState:
    """The present state, and the runs of the recent past."""

    snapshot: Snapshot
    history: History = field(default_factory=History)
    submissions: dict[RunId, WorkloadState] = field(default_factory=dict)
    """Id to the last state of each workload that was submitted in the time asked for."""

    seconds: dict[RunId, float] = field(default_factory=dict)
    """How long each of them ran, if it has ended."""

    messages: list[tuple[str, Json]] = field(default_factory=list)
    """Subject and body of what was read, in order. Kept only for `save`."""

    def recent(self, span: timedelta) -> list[WorkloadState]:
        """The workloads that were submitted in the last `span`."""
        begin = self.snapshot.at - span
        return [s for s in self.submissions.values() if begin <= s.created_at < self.snapshot.at]


async def read(
    reader: StreamReader,
    *,
    at: datetime,
    since: datetime | None = None,
    keep: bool = False,
    over: Callable[[], bool] | None = None,
) -> LoadedState:
    """Read the present from the views, and what happened after `since` from the logs; no void decisions.

    `keep` keeps the messages for `save`. Raises `TimeoutError` once `over` says so.
    """
    begin = since if since is not None else at - HISTORY_SPAN
    filters = [observed_filter(kind) for kind in OBSERVED_KINDS]
    present = [
        *await reader.now(Stream.OBSERVED, *filters),
        *await reader.now(Stream.WORKLOADS),
        *await reader.now(Stream.ADMISSIONS),
    ]
    history = [
        *await reader.replay(Stream.ADMISSIONS, since=begin),
        *await reader.replay(Stream.WORKLOADS, since=begin),
    ]
    terms = await reader.terms()
    now = ((seen.subject, seen.body) for seen in present if not seen.is_void(terms))
    earlier = (
        (LOG_PREFIX + seen.subject, seen.body) for seen in history if not seen.is_void(terms)
    )
    messages = chain(now, earlier)
    return _loaded(at, messages if over is None else _until(over, messages), keep=keep)


def _until(over: Callable[[], bool], messages: Iterable[T]) -> Iterator[T]:
    for message in messages:
        if over():
            raise TimeoutError
        yield message


def _loaded(at: datetime, messages: Iterable[tuple[str, Json]], *, keep: bool) -> LoadedState:
    """Build the state from subjects and bodies; subjects from logs begin with `LOG_PREFIX`."""
    reading = SnapshotReader(at)
    loaded = LoadedState(snapshot=reading.snapshot)
    admissions: list[Admission] = []
    states: list[WorkloadState] = []
    with _gc_paused():
        for subject, body in messages:
            if keep:
                loaded.messages.append((subject, body))
            try:
                if not subject.startswith(LOG_PREFIX):
                    reading.apply(subject, body)
                    continue
                sort = message_sort(subject.removeprefix(LOG_PREFIX))
                if sort == "admission":
                    admissions.append(Admission.model_validate(body))
                elif sort == "workload":
                    states.append(WorkloadState.model_validate(body))
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                field_ = ".".join(str(part) for part in first["loc"])
                raise CommandError(subject, f"{field_}: {first['msg']}") from error
        _record_runs(loaded, admissions, states)
    return loaded


@contextmanager
def _gc_paused() -> Iterator[None]:
    """Pause garbage collection: all of the many new objects are kept, so it only costs time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _record_runs(
    loaded: LoadedState, admissions: list[Admission], states: list[WorkloadState]
) -> None:
    for run in finished_runs(admissions, states):
        loaded.history.add(run)
        loaded.seconds[RunId.of(run.state)] = run.seconds
    for state in states:
        if state.phase != "gone":
            loaded.submissions[RunId.of(state)] = state


# Files -----------------------------------------------------------------------------------------


def save(loaded: LoadedState, file: Path) -> None:
    """Write what was read, one message a line, so that it can be loaded again.

    Raises `CommandError` if the file cannot be written.
    """
    try:
        with file.open("w", encoding="utf-8") as out:
            out.write(json.dumps({"at": loaded.snapshot.at.isoformat()}) + "\n")
            for subject, body in loaded.messages:
                out.write(json.dumps({"subject": subject, "body": body}) + "\n")
    except OSError as error:
        problem = environment_error(error, str(file))
        raise problem or CommandError(str(file), unwritable(error)) from error


def load(file: Path, *, keep: bool = False) -> LoadedState:
    """Read what `save` wrote. Raises `CommandError` with the line of the first problem."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        hint = "give a file that `sluice simulate --save` wrote, or a folder of manifests"
        raise CommandError(str(file), unreadable(error), hint=hint) from error
    except UnicodeDecodeError:
        lines = []
    try:
        at = datetime.fromisoformat(json.loads(lines[0])["at"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise CommandError(
            str(file),
            "is not what `sluice simulate --save` writes",
            hint="give such a file, or a folder of manifests",
        ) from error
    return _loaded(at, _pairs(file, lines[1:]), keep=keep)


def _pairs(file: Path, lines: list[str]) -> Iterator[tuple[str, Json]]:
    for number, line in enumerate(lines, start=2):
        try:
            document = json.loads(line)
            yield str(document["subject"]), dict(document["body"])
        except (ValueError, KeyError, TypeError) as error:
            raise CommandError(f"{file}:{number}", f"is no message: {line[:60]!r}") from error


def from_manifests(folder: Path, *, at: datetime, changes: Changes) -> LoadedState:
    """The state that the queues and jobs of a folder make, and nothing else."""
    snapshot = Snapshot(at=at)
    changes.apply(snapshot, load_manifests([folder]), cluster=LOCAL)
    for each in snapshot.observed.values():
        try:
            observed_facts(each)
        except TranslateError as error:
            raise CommandError(str(folder), str(error)) from error
    return LoadedState(snapshot=snapshot)
