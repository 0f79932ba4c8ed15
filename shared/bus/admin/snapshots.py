"""Streams in files and back: what `sluice bus backup` and `sluice bus restore` do.

Each stream is a folder with `backup.json` (configuration and state) and `stream.tar.s2` (as the server gives
it, consumers included): the layout of `nats stream backup`, so that either tool reads what the other wrote.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from shared.bus.admin.election_retry import ElectionRetry
from shared.bus.nats.jetstream_api import STREAM_NOT_FOUND, ApiError, Json, call
from shared.bus.nats.stream_drift import stream_info
from shared.bus.port import UnavailableError
from shared.bus.stream_reader import StreamReader
from shared.bus.streams import LEASES, VIEW_SUFFIX, load

CHUNK_BYTES: Final = 128 << 10
SILENCE_SECONDS: Final = 10.0
CONFIG_FILE: Final = "backup.json"
DATA_FILE: Final = "stream.tar.s2"


class BackupError(Exception):
    """A file or a stream does not allow the backup or restore."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """One stream that was written to files, or made from them."""

    stream: str
    messages: int
    size: int
    """Of its data file, in bytes."""

    def __str__(self) -> str:
        return f"{self.stream}: {self.messages} messages, {self.size} bytes"


async def backup(
    reader: StreamReader, directory: Path, retry: ElectionRetry
) -> AsyncIterator[Saved]:
    """Write each stream to its own folder and yield it when done. Services may keep running.

    A view comes before its log: so a view never knows more than its log does, and catches up by itself.
    Leases are left out: who leads is found anew. Raises `BackupError` and `BusError`.
    """
    if _is_used(directory):
        raise BackupError(f"{directory} is there already and is not empty")
    for name in sorted(_names(), key=lambda name: not name.endswith(VIEW_SUFFIX)):
        try:
            yield await save_stream(reader.nc, name, directory / name, retry)
        except ApiError as error:
            if error.code != STREAM_NOT_FOUND:
                raise


def _is_used(directory: Path) -> bool:
    return directory.exists() and any(directory.iterdir())


def _folders(directory: Path) -> list[Path]:
    return sorted(path.parent for path in directory.glob(f"*/{CONFIG_FILE}"))


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)  # It is there if this is tried again.
    return folder / DATA_FILE


def _names() -> list[str]:
    return [name for name in load().configs() if name != LEASES]


async def save_stream(nc: Client, name: str, folder: Path, retry: ElectionRetry) -> Saved:
    """Write one stream to a folder. Raises `BackupError` and `BusError`."""
    return await retry.ask(partial(_save_stream, nc, name, folder))


async def _save_stream(nc: Client, name: str, folder: Path) -> Saved:
    inbox = nc.new_inbox()
    subscription = await nc.subscribe(inbox, pending_msgs_limit=-1, pending_bytes_limit=-1)
    try:
        request = {"deliver_subject": inbox, "chunk_size": CHUNK_BYTES}
        answer = await call(nc, f"STREAM.SNAPSHOT.{name}", request)
        size = 0
        with _made(folder).open("wb") as file:
            while True:
                message = await subscription.next_msg(timeout=SILENCE_SECONDS)
                if not message.data:
                    _refuse_error(name, message.headers or {})
                    break
                size += file.write(message.data)
                # The server sends at most one window without acknowledgements.
                if message.reply:
                    await nc.publish(message.reply)
    except NatsError as error:
        raise UnavailableError(f"snapshot of {name}: {error!r}") from error
    finally:
        await subscription.unsubscribe()
    kept = {"config": answer["config"], "state": answer["state"]}
    (folder / CONFIG_FILE).write_text(json.dumps(kept, indent=2))
    return Saved(stream=name, messages=int(answer["state"]["messages"]), size=size)


def _refuse_error(name: str, headers: dict[str, str]) -> None:
    """The end of the data has no headers, or a good one.

    While servers elect a leader, one of them may not read its own consumers: that is not told from a fault
    which lasts.
    """
    status = headers.get("Status", "")
    if status and not status.startswith("2"):
        reason = f"{status} {headers.get('Description', '')}".rstrip()
        raise UnavailableError(f"snapshot of {name}: {reason}")


async def restore(
    reader: StreamReader, directory: Path, retry: ElectionRetry
) -> AsyncIterator[Saved]:
    """Create each stream from its folder and yield it when done. Views come before their logs.

    Of three servers one has a restored stream first. Where another one leads then, a view with a log beside
    it begins with the first message of the log, and has everything twice, under new sequences.

    Nothing is overwritten: raises `BackupError` where one of them is on the server already. Raises
    `BusError` where the server refuses or falls silent.
    """
    folders = _folders(directory)
    if not folders:
        raise BackupError(f"{directory} has no backup: no folder in it has a {CONFIG_FILE}")
    for folder in folders:
        if await retry.ask(partial(stream_info, reader.nc, folder.name)) is not None:
            raise BackupError(f"stream {folder.name} is there already: nothing was restored")
    for folder in sorted(folders, key=lambda folder: not folder.name.endswith(VIEW_SUFFIX)):
        yield await load_stream(reader.nc, folder, retry)


async def load_stream(nc: Client, folder: Path, retry: ElectionRetry) -> Saved:
    """Create one stream from its folder. Raises `BackupError` and `BusError`."""
    name = folder.name
    kept: Json = json.loads((folder / CONFIG_FILE).read_text())
    request = {"config": kept["config"], "state": kept["state"]}
    answer = await retry.call(nc, f"STREAM.RESTORE.{name}", request)
    subject = answer["deliver_subject"]
    size = 0
    try:
        with (folder / DATA_FILE).open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                size += len(chunk)
                _accepted(name, await _delivered(nc, subject, chunk))
        last = await _delivered(nc, subject, b"")
    except NatsError as error:
        raise UnavailableError(f"restoring {name}: {error}") from error
    _accepted(name, last)
    return Saved(stream=name, messages=int(kept["state"]["messages"]), size=size)


async def _delivered(nc: Client, subject: str, chunk: bytes) -> bytes:
    """The answer to a chunk. Of three servers ours may learn late that another one listens.

    A chunk that no server received can be sent again.
    """
    deadline = asyncio.get_running_loop().time() + SILENCE_SECONDS
    while True:
        try:
            return bytes((await nc.request(subject, chunk, timeout=SILENCE_SECONDS)).data)
        except NoRespondersError:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.05)


def _accepted(name: str, reply: bytes) -> None:
    if reply.startswith(b"{") and (problem := json.loads(reply).get("error")):
        raise BackupError(f"restoring {name}: {problem.get('description')}")
    if reply.startswith(b"-ERR"):
        raise BackupError(f"restoring {name}: {reply.decode(errors='replace')}")
