"""A journal of all objects in a file: a simulator that is killed restarts with the same objects.

Each change is one line, written before the request is answered. There is no fsync: the journal
survives the death of the process, not of the machine. State in the controllers' memory (how long a
pod still runs) is lost, as with real controllers.
"""

import os
from pathlib import Path
from typing import Final

import orjson
import structlog

from services.simulator.cluster.api import Api
from services.simulator.cluster.kinds import definitions
from services.simulator.cluster.kinds.registry import Kind, Obj
from services.simulator.cluster.storage.stored import Event

log = structlog.get_logger(__name__)

REWRITE_BYTES: Final = 64 << 20
"""A smaller file is never rewritten while the simulator runs."""

REWRITE_FACTOR: Final = 4
"""Growth since the last rewrite that causes the next one."""

Key = tuple[str, str, str]
"""Resource, namespace, name."""


class JournalError(Exception):
    """The file is not a journal of the simulator."""


class Journal:
    """Restores the objects of an earlier process, then records each change."""

    def __init__(self, path: Path, api: Api) -> None:
        self._path = path
        self._api = api
        self._file: int | None = None
        self._size = 0
        self._rewritten = 0

    def open(self) -> int:
        """Restore the objects; return the resource version of the last change, 0 for an empty journal.

        Call it before anything subscribes to the store. Raises `JournalError`.
        """
        objects, version = self._read()
        if version:
            self._restore(objects, version)
            log.info(
                "the simulator restored its objects",
                path=str(self._path),
                objects=len(objects),
                version=version,
            )
        self._rewrite()
        self._api.store.subscribe(None, self._write)
        return version

    def close(self) -> None:
        """Stop recording and close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _read(self) -> tuple[dict[Key, Obj], int]:
        objects: dict[Key, Obj] = {}
        version = 0
        if not self._path.exists():
            return objects, version
        lines = self._path.read_bytes().split(b"\n")
        # The process died while it wrote what follows the last line feed.
        for number, line in enumerate(lines[:-1], start=1):
            try:
                change = orjson.loads(line)
                version = max(version, change["version"])
                if "resource" in change:
                    obj = change["object"]
                    metadata = obj["metadata"]
                    key = (change["resource"], metadata.get("namespace", ""), metadata["name"])
                    objects.pop(key, None)
                    if not change.get("gone"):
                        objects[key] = obj
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise JournalError(f"{self._path}: line {number}: {error!r}") from error
        return objects, version

    def _restore(self, objects: dict[Key, Obj], version: int) -> None:
        for (resource, _, _), obj in objects.items():
            if resource == definitions.CRD_RESOURCE:
                described = definitions.kind_from(obj)
                if described is not None:
                    self._api.kinds.add(described)
        served = {kind.resource: kind for kind in self._api.kinds}
        found: list[tuple[Kind, Obj]] = []
        for (resource, _, name), obj in objects.items():
            if resource in served:
                found.append((served[resource], obj))
            else:
                log.warning(
                    "an object of a kind that is not served is not restored",
                    resource=resource,
                    name=name,
                )
        self._api.store.restore(found, version)

    def _rewrite(self) -> None:
        """Replace the file by one with only the current objects, atomically."""
        store = self._api.store
        part = self._path.with_suffix(".part")
        with part.open("wb") as out:
            out.write(orjson.dumps({"version": store.version}) + b"\n")
            for kind in self._api.kinds:
                for stored in store.objects(kind):
                    out.write(_line(Event("ADDED", stored, None)))
            self._size = self._rewritten = out.tell()
        part.replace(self._path)
        self.close()
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)

    def _write(self, event: Event) -> None:
        if self._file is None:
            return
        line = _line(event)
        os.write(self._file, line)
        self._size += len(line)
        if self._size > max(REWRITE_BYTES, REWRITE_FACTOR * self._rewritten):
            self._rewrite()


def _line(event: Event) -> bytes:
    stored = event.stored
    head = {"version": stored.version, "resource": stored.kind.resource}
    if event.type == "DELETED":
        metadata = {"namespace": stored.namespace, "name": stored.name}
        return orjson.dumps({**head, "gone": True, "object": {"metadata": metadata}}) + b"\n"
    return orjson.dumps({**head, "object": orjson.Fragment(stored.raw())}) + b"\n"
