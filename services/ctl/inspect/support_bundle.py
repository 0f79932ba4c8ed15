"""`sluice support-bundle`: what somebody who helps has to see, in one file, without secrets.

What enters: the streams, and the logs of the `sluice dev` in a folder.
What leaves: a `.tar.gz` of texts. It holds names and reasons of workloads, and no object's content.

What cannot be read leaves its error in its place: a bundle is made when something is broken.
"""

import io
import json
import os
import platform
import tarfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from services.ctl.admin.dead_reading import show_list
from services.ctl.connect.progress import progress
from services.ctl.connect.reader import nats_url_of, open_reader
from services.ctl.doctor.command import doctor
from services.ctl.get.command import Query, get
from services.ctl.inspect.status import status
from shared.runtime.command import CommandError
from shared.telemetry.redaction import redacted

LOG_BYTES_MAX: Final = 1024 * 1024
"""Most bytes of one log, from its end."""

TABLES: Final = ("workloads", "clusterqueues", "localqueues", "cohorts", "flavors", "spokes")

Part = Callable[[], Awaitable[object]]
"""Prints what belongs into one file of the bundle."""


async def write_bundle(file: Path, *, url: str | None, directory: Path) -> list[str]:
    """Write the bundle; return a line for each part that could not be read. Raises `CommandError`.

    Neither the file nor a line has a secret in it.
    """
    _refuse_existing(file)
    missing: list[str] = []
    with progress("reading the logs") as note:
        texts = dict(_logs(directory))
        for name, part in _parts(url, directory).items():
            note(f"making {name} of the bundle")
            printed = io.StringIO()
            try:
                with redirect_stdout(printed), redirect_stderr(printed):
                    await part()
            except Exception as error:  # noqa: BLE001  # its text stands in the bundle, and the rest is needed
                why = str(error) or repr(error)
                print(f"could not be read: {why}", file=printed)
                missing.append(redacted(f"{name}: {why}"))
            texts[name] = printed.getvalue()
        note(f"writing {file}")
        try:
            _pack(file, texts)
        except OSError as error:
            raise CommandError(str(file), f"cannot be written: {error.strerror}") from error
    return missing


def _refuse_existing(file: Path) -> None:
    if file.exists():
        raise CommandError(str(file), "is there already", hint="name another file with --out")


def _parts(url: str | None, directory: Path) -> dict[str, Part]:
    def table(name: str) -> Part:
        query = Query.of(name, output="wide", namespace=None)
        return lambda: get(query, watch=False, url=url, directory=directory)

    async def about() -> None:
        print(f"sluice {version('sluicegate')}, Python {platform.python_version()}")
        print(f"{platform.platform()}, {os.cpu_count()} cores")
        print(
            f"made at {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}, NATS at {nats_url_of(url, directory)}"
        )
        print("settings in the environment, without their values:")
        print("\n".join(sorted(name for name in os.environ if name.startswith("SLUICE_"))))

    async def streams() -> None:
        async with open_reader(url, directory) as reader:
            print(json.dumps(await reader.call("STREAM.LIST", {"offset": 0}), indent=2))

    return {
        "about.txt": about,
        "status.txt": lambda: status(output="text", url=url, directory=directory),
        "doctor.txt": lambda: doctor(
            output="text",
            kubeconfig=None,
            service_namespace="",
            document=None,
            url=url,
            directory=directory,
        ),
        "streams.json": streams,
        "dead-letters.txt": lambda: show_list(as_json=False, url=url, directory=directory),
        **{f"{name}.txt": table(name) for name in TABLES},
    }


def _logs(directory: Path) -> dict[str, str]:
    found = {}
    for log in sorted((directory / "logs").glob("*.log")):
        with log.open("rb") as opened:
            if (before := log.stat().st_size - LOG_BYTES_MAX) > 0:
                opened.seek(before)
                opened.readline()  # The rest of a line may have a secret without its name.
            found[f"logs/{log.name}"] = opened.read().decode(errors="replace")
    return found


def _pack(file: Path, texts: Mapping[str, str]) -> None:
    """Write the archive under another name first: what bears the right name is whole."""
    unfinished = file.with_name(f"{file.name}.part")
    folder = file.name.removesuffix(".tar.gz")
    try:
        with tarfile.open(unfinished, "w:gz") as archive:
            for name, text in texts.items():
                data = redacted(text).encode()
                member = tarfile.TarInfo(f"{folder}/{name}")
                member.size, member.mtime = len(data), int(datetime.now(UTC).timestamp())
                archive.addfile(member, io.BytesIO(data))
        unfinished.rename(file)
    finally:
        unfinished.unlink(missing_ok=True)
