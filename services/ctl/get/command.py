"""`sluice get`: reads the streams of a resource, and prints it once or as it changes."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from services.ctl.connect.reader import open_reader, utc_now
from services.ctl.get.clusters import refuse_unknown_cluster
from services.ctl.get.resources import RESOURCES, Column, Resource, Row, resource_named
from services.ctl.get.selectors import Selects, selector
from services.ctl.get.snapshot import Json, ObjectKey, Snapshot
from services.ctl.get.table import Table, coloured
from services.ctl.get.workloads import POSITION, queue_order
from shared.bus.stream_reader import SUFFIX, Seen, SilentError, StreamReader, StreamReaderError
from shared.contracts import rpc
from shared.runtime.command import CommandError, Exit
from shared.runtime.suggestions import did_you_mean

OUTPUTS: Final = ("table", "wide", "json", "yaml", "name")
SETTLE_SECONDS: Final = 0.2
"""How long a watch collects messages before it prints rows."""

POSITIONS_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a user asks for."""

    resource: Resource
    name: str | None = None
    namespace: str | None = "default"
    """None means all namespaces."""

    cluster: str | None = None
    labels: str | None = None
    output: str = "table"
    header: bool = True

    @classmethod
    def of(cls, word: str, *, output: str, **options: Any) -> "Query":
        """The query for a user's words. Raises `CommandError`."""
        word, name = _kind_and_name(word, options.pop("name", None))
        resource = resource_named(word)
        if resource is None:
            known = ", ".join(f"{r.name} ({', '.join(r.short)})" for r in RESOURCES)
            guess = did_you_mean(word, [r.name for r in RESOURCES])
            problem = "; ".join(filter(None, ("there is no such resource", guess)))
            raise CommandError(repr(word), problem, hint=f"there are {known}")
        if output not in OUTPUTS:
            raise CommandError(f"--output {output}", f"must be one of {', '.join(OUTPUTS)}")
        if name is not None and options.get("labels"):
            raise CommandError("--selector", "contradicts the name: give one of them")
        if name is not None and resource.namespaced and "/" in name:
            options["namespace"], _, name = name.partition("/")
        return cls(resource=resource, output=output, name=name, **options)

    def inputs(self) -> list[tuple[str, str]]:
        """(log, filter) of everything that must be read."""
        namespace = self.namespace if self.resource.namespaced else None
        return self.resource.inputs(self.cluster, namespace)

    def rows(self, snapshot: Snapshot, now: datetime) -> list[Row]:
        """The rows that match, sorted as kubectl sorts them."""
        selects: Selects = selector(self.labels)
        found = [
            row
            for row in self.resource.rows(snapshot, now)
            if (self.cluster is None or row.ident.cluster == self.cluster)
            and (
                not self.resource.namespaced
                or self.namespace is None
                or row.ident.namespace == self.namespace
            )
            and (self.name is None or self.name in {row.ident.name, row.alias})
            and selects(row.labels)
        ]
        return sorted(
            found, key=lambda row: (row.ident.namespace, row.ident.name, row.ident.cluster)
        )


def _kind_and_name(word: str, name: str | None) -> tuple[str, str | None]:
    """``KIND/NAME`` and ``KIND.GROUP`` are kinds, too, as `-o name` prints them."""
    kind, slash, after = word.partition("/")
    if slash and name is not None:
        raise CommandError(repr(word), f"names an object already, and so does {name!r}")
    return kind.partition(".")[0], after if slash else name


async def get(query: Query, *, watch: bool, url: str | None, directory: Path) -> None:
    """Print the rows. Raises `CommandError`, also for a name that does not exist."""
    inputs = query.inputs()
    async with open_reader(url, directory) as reader:
        if watch:
            if query.name is not None and not query.rows(await read(reader, inputs), utc_now()):
                raise _not_found(query)
            async for line in _watched(reader, query):
                print(line, flush=True)
            return
        snapshot = await read(reader, inputs)
        rows = query.rows(snapshot, utc_now())
        rows = await _with_positions(reader, query, rows)
        if not rows and query.cluster is not None:
            await refuse_unknown_cluster(reader, query.cluster)
    if not rows and query.name is not None:
        raise _not_found(query)
    if not rows and query.output not in {"json", "yaml"}:
        print(_nothing(query), file=sys.stderr)
        return
    print("\n".join(show(query, rows)))


async def read(reader: StreamReader, inputs: Iterable[tuple[str, str]]) -> Snapshot:
    """Read the views of these logs into a snapshot."""
    snapshot = Snapshot()
    reading = (reader.now(log, *filters) for log, filters in _by_log(inputs).items())
    for view in await asyncio.gather(*reading):
        for seen in await reader.valid(view):
            snapshot.apply(seen)
    return snapshot


def _by_log(inputs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    by_log: dict[str, list[str]] = {}
    for log, filter_ in inputs:
        by_log.setdefault(log, []).append(filter_)
    return by_log


async def _with_positions(reader: StreamReader, query: Query, rows: list[Row]) -> list[Row]:
    """Fill in positions in the queue if the quota service answers, and sort by them."""
    if query.resource.name != "workloads" or query.output not in {"table", "wide"}:
        return rows
    if any("PENDING" in row.cells for row in rows):
        rows = await _positioned(reader, query, rows)
    return sorted(rows, key=_place)


def _place(row: Row) -> tuple[Any, ...]:
    created_at = str(row.object["sluice"]["workload"].get("created_at"))
    return (row.ident.namespace, row.ident.cluster, *queue_order(row.cells, created_at), row.ident)


async def _positioned(reader: StreamReader, query: Query, rows: list[Row]) -> list[Row]:
    question: Json = {"limit": rpc.POSITIONS_MAX}
    if query.namespace is not None:
        question["namespace"] = query.namespace
    try:
        answer = await reader.ask(
            rpc.POSITIONS, json.dumps(question).encode(), timeout_seconds=POSITIONS_SECONDS
        )
    except SilentError:
        return rows  # No quota service leads at the moment: show the rest.
    places = {
        (item["cluster"], item["namespace"], item["name"]): str(item["position"])
        for item in json.loads(answer).get("items", [])
    }
    return [_with_cell(row, POSITION, places.get(row.ident, "")) for row in rows]


def _with_cell(row: Row, index: int, text: str) -> Row:
    cells = (*row.cells[:index], text, *row.cells[index + 1 :])
    return Row(ident=row.ident, cells=cells, object=row.object, labels=row.labels, alias=row.alias)


# Printing ----------------------------------------------------------------------------------------


def show(query: Query, rows: list[Row]) -> list[str]:
    """The lines of one answer."""
    match query.output:
        case "json":
            return [json.dumps(_listed(query, rows), indent=4)]
        case "yaml":
            return [_yaml(_listed(query, rows))]
        case "name":
            return [_title(query.resource, row) for row in rows]
        case _:
            printer = _Printer(query, rows)
            return list(printer.lines(rows, header=query.header))


def _listed(query: Query, rows: list[Row]) -> Json:
    """One object if it was asked for by name, else a List, as kubectl prints it."""
    if query.name is not None and len(rows) == 1:
        return rows[0].object
    return {"apiVersion": "v1", "kind": "List", "items": [row.object for row in rows]}


def _yaml(obj: Json) -> str:
    from services.ctl.get.yaml_text import yaml_text  # noqa: PLC0415

    return yaml_text(obj, sort_keys=True).rstrip("\n")


def _title(resource: Resource, row: Row) -> str:
    api_version = str(row.object.get("apiVersion", ""))
    group = api_version.partition("/")[0] if "/" in api_version else ""
    return f"{'.'.join(part for part in (resource.singular, group) if part)}/{row.ident.name}"


def _nothing(query: Query) -> str:
    if query.resource.namespaced and query.namespace is not None:
        return f"No resources found in {query.namespace} namespace."
    return "No resources found"


def _not_found(query: Query) -> CommandError:
    where = f" in {query.namespace} namespace" if query.resource.namespaced else ""
    return CommandError(
        f"{query.resource.singular} {query.name}",
        f"not found{where if query.namespace else ''}",
        hint=f"`sluice get {query.resource.name}"
        f"{' -A' if query.resource.namespaced else ''}` lists what there is",
        status=Exit.FAILED,
    )


class _Printer:
    """Prints rows. It chooses the columns once, so that a watch keeps them."""

    def __init__(self, query: Query, rows: list[Row]) -> None:
        self._columns: list[tuple[int, Column]] = [
            (index, column)
            for index, column in enumerate(query.resource.columns)
            if query.output == "wide" or not column.wide
        ]
        self._clusters = len({row.ident.cluster for row in rows}) > 1
        self._namespaces = query.resource.namespaced and query.namespace is None
        header = [column.title for _, column in self._columns]
        if self._namespaces:
            header = ["NAMESPACE", *header]
        if self._clusters:
            header = ["CLUSTER", *header]
        self._table = Table(header, colours=coloured())

    def lines(self, rows: list[Row], *, header: bool) -> list[str]:
        return self._table.lines([self._cells(row) for row in rows], header=header)

    def _cells(self, row: Row) -> list[str]:
        cells = [row.cells[index] for index, _ in self._columns]
        if self._namespaces:
            cells = [row.ident.namespace, *cells]
        return [row.ident.cluster, *cells] if self._clusters else cells

    def stable_cells(self, row: Row) -> tuple[str, ...]:
        """The cells that do not change by time alone: a watch prints a row only if one of them changes."""
        return tuple(row.cells[index] for index, column in self._columns if not column.volatile)


# Watching ----------------------------------------------------------------------------------------


async def _watched(reader: StreamReader, query: Query) -> AsyncIterator[str]:
    """All rows, then each row that changes, as `kubectl get --watch` prints them."""
    snapshot, printer = Snapshot(), None
    printed: dict[ObjectKey, tuple[str, ...]] = {}
    async with aclosing(_batches(reader, query)) as batches:
        async for batch in batches:
            for seen in await reader.valid(batch):
                snapshot.apply(seen)
            rows = query.rows(snapshot, utc_now())
            if printer is None and not rows:
                continue  # No rows yet: print no header.
            first = printer is None
            printer = printer or _Printer(query, rows)
            fresh = [row for row in rows if printed.get(row.ident) != printer.stable_cells(row)]
            fresh = await _with_positions(reader, query, fresh)
            printed = {row.ident: printer.stable_cells(row) for row in rows}
            for line in _changed(query, printer, fresh, header=first and query.header):
                yield line


def _changed(query: Query, printer: _Printer, rows: list[Row], *, header: bool) -> Iterator[str]:
    if query.output in {"table", "wide"}:
        yield from printer.lines(rows, header=header)
        return
    for row in rows:
        match query.output:
            case "json":
                yield json.dumps(row.object, indent=4)
            case "yaml":
                yield f"---\n{_yaml(row.object)}"
            case _:
                yield _title(query.resource, row)


async def _batches(reader: StreamReader, query: Query) -> AsyncGenerator[list[Seen]]:
    """Everything that the views hold, then changes, in batches."""
    arrived: asyncio.Queue[Seen | StreamReaderError | None] = asyncio.Queue()
    by_log = _by_log(query.inputs())

    async def follow(log: str, filters: list[str]) -> None:
        try:
            async with aclosing(reader.follow(log + SUFFIX, *filters)) as items:
                async for seen in items:
                    arrived.put_nowait(seen)
        except StreamReaderError as error:
            arrived.put_nowait(error)

    following = [asyncio.create_task(follow(log, filters)) for log, filters in by_log.items()]
    try:
        batch, unread = [], len(by_log)
        while True:
            item = await arrived.get()
            if isinstance(item, StreamReaderError):
                raise item
            if item is None:
                unread -= 1
            else:
                batch.append(item)
            if unread or not arrived.empty():
                continue
            yield batch
            batch = []
            await asyncio.sleep(SETTLE_SECONDS)
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
