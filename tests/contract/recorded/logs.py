"""The streams of a server and its clusters as lines of JSON, and the same again from these lines.

A line is a message of a log: `stream`, `sequence`, `subject`, `headers`, `data`, `time` (when the server
stored it) and `in_view`: whether the view held it at the moment of the recording. Or it is an `object` of
a `cluster`, as its API server stored it (Events are left out), or the `epoch` of the streams of
a `log`.
"""

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from services.simulator.cluster.api import Api
from services.simulator.cluster.conversion import convert
from services.simulator.cluster.kinds.registry import Obj
from shared.bus.direct_read import SOURCE
from shared.bus.headers import MESSAGE_ID
from shared.bus.port import Entry
from shared.bus.streams import view_of
from shared.testing.world.memory_server import MemoryServer
from shared.testing.world.memory_streams import MemoryStream

LEFT_OUT: Final = ("Event",)
FOLDER: Final = Path(__file__).parent

CONNECTIONS_BEFORE: Final = 1000
"""More than there were before a recording: names of holders and ids of messages are not given again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One message of a log."""

    stream: str
    sequence: int
    subject: str
    headers: dict[str, str]
    data: str
    time: str
    in_view: bool

    @property
    def entry(self) -> Entry:
        """The message as a reader gets it."""
        return Entry(
            subject=self.subject,
            data=self.data.encode(),
            headers=self.headers,
            sequence=self.sequence,
            time=datetime.fromisoformat(self.time),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """All logs of one server at one moment, each in the order of its sequences."""

    release: str
    messages: tuple[Recorded, ...]
    clusters: Mapping[str, list[Obj]]
    """Cluster to its objects."""

    epochs: Mapping[str, int]
    """Log to the epoch of its streams; 0 for one of a release that gave none."""

    @property
    def until(self) -> datetime:
        """When the server stored the last message."""
        return max(datetime.fromisoformat(one.time) for one in self.messages)

    def log(self, stream: str) -> list[Entry]:
        """The messages of one log."""
        return [one.entry for one in self.messages if one.stream == stream]

    def view(self, stream: str) -> list[Entry]:
        """The messages of one log that its view holds."""
        return [one.entry for one in self.messages if one.stream == stream and one.in_view]


def read_file(release: str) -> Recording:
    """Return what is recorded of a release. Raises `OSError` if there is no such file."""
    clusters: dict[str, list[Obj]] = {}
    epochs: dict[str, int] = {}
    messages = []
    with gzip.open(FOLDER / f"{release}.jsonl.gz", "rt") as lines:
        for line in map(json.loads, lines):
            if "cluster" in line:
                clusters.setdefault(line["cluster"], []).append(line["object"])
            elif "log" in line:
                epochs[line["log"]] = line["epoch"]
            else:
                messages.append(Recorded(**line))
    return Recording(release=release, messages=tuple(messages), clusters=clusters, epochs=epochs)


def write_file(path: Path, server: MemoryServer, clusters: Mapping[str, Api]) -> None:
    """Write what they hold now; the same gives the same bytes."""
    lines = [
        {"log": one.name, "epoch": one.epoch} for one in server.streams.values() if one.subjects
    ]
    lines += [asdict(one) for one in _messages(server)]
    for name, api in clusters.items():
        kinds = [kind for kind in api.kinds if kind.kind not in LEFT_OUT]
        objects = (one.obj for kind in kinds for one in api.store.objects(kind))
        lines += [{"cluster": name, "object": obj} for obj in objects]
    text = "".join(json.dumps(line, sort_keys=True) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _messages(server: MemoryServer) -> Iterator[Recorded]:
    for log in server.streams.values():
        view = server.streams.get(view_of(log.name))
        if not log.subjects or view is None:
            continue
        shown = {one.origin for one in view.messages.values()}
        for one in log.messages.values():
            yield Recorded(
                stream=log.name,
                sequence=one.sequence,
                subject=one.subject,
                headers=dict(one.headers),
                data=one.data.decode(),
                time=one.time.isoformat(),
                in_view=one.sequence in shown,
            )


def restore(api: Api, objects: list[Obj]) -> None:
    """Put these objects into a cluster, in the versions that its API server stores now."""
    found = []
    for obj in objects:
        kind = api.kinds.by_kind(obj["apiVersion"], obj["kind"])
        assert kind is not None, obj["kind"]
        found.append((kind, convert(kind, obj, kind.storage_version)))
    newest = max(int(obj["metadata"]["resourceVersion"]) for _, obj in found)
    api.store.restore(found, newest)


def load(server: MemoryServer, recording: Recording) -> None:
    """Put the logs and their views into the streams of a server that is empty."""
    now = server.now()
    server.connections = CONNECTIONS_BEFORE
    for name, epoch in recording.epochs.items():
        server.streams[name].epoch = epoch
        if (shown := server.streams.get(view_of(name))) is not None:
            shown.epoch = epoch
    for one in recording.messages:
        log, view = server.streams[one.stream], server.view(one.stream)
        stored = datetime.fromisoformat(one.time)
        at = server.seconds() - (now - stored).total_seconds()
        log.last = one.sequence - 1
        _append(log, one, one.headers, at, stored)
        source = {**one.headers, SOURCE: f"{one.stream} {one.sequence} > > {one.subject}"}
        copied = _append(view, one, source, at, stored)
        view.sourced = one.sequence
        if not one.in_view:
            view.remove(copied)


def _append(
    stream: MemoryStream, one: Recorded, headers: dict[str, str], at: float, time: datetime
) -> int:
    is_log = bool(stream.subjects)
    return stream.append(
        subject=one.subject,
        data=one.data.encode(),
        headers=headers,
        at=at,
        time=time,
        message_id=one.headers.get(MESSAGE_ID) if is_log else None,
        origin=one.sequence,
    )
