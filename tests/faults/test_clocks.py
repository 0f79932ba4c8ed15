"""Clocks that `make faults` moves: what is needed for it, and that only the time of day jumps."""

import asyncio
import os
import struct
import sys
import time
from pathlib import Path

import pytest

from shared.bus.embedded import server_command
from tests.faults.clocks import LIBRARY_VARIABLE, NAMES, Clock, library

PROGRAM = """
import sys, time
for _ in sys.stdin:
    print(time.time(), time.monotonic(), flush=True)
"""
TEN_MINUTES = 600.0
INTERPRETER = 3
"""`PT_INTERP`: the segment of an ELF file that names what loads libraries."""


@pytest.fixture(autouse=True)
def _unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LIBRARY_VARIABLE, raising=False)


def _place(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return folder


def test_library_for_threads_is_found_before_the_other(tmp_path: Path) -> None:
    one = _place(tmp_path / "some-linux-gnu" / "faketime", *NAMES)
    assert library((str(tmp_path / "*" / "faketime"),)) == one / "libfaketimeMT.so.1"


def test_only_the_library_that_is_named_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, own = _place(tmp_path / "usual", *NAMES), _place(tmp_path / "own", "mine.so")
    monkeypatch.setenv(LIBRARY_VARIABLE, str(own / "mine.so"))
    assert library((str(usual),)) == own / "mine.so"
    monkeypatch.setenv(LIBRARY_VARIABLE, str(own / "absent.so"))
    assert library((str(usual),)) is None


def test_no_library_is_found_where_none_is(tmp_path: Path) -> None:
    assert library((str(tmp_path),)) is None


@pytest.mark.skipif(library() is None, reason="no libfaketime on this machine")
async def test_time_of_day_jumps_and_monotonic_time_does_not(tmp_path: Path) -> None:
    found = library()
    assert found is not None
    clock = Clock(tmp_path / "clock")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=dict(os.environ) | clock.environment(found),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for seconds in (0.0, TEN_MINUTES, -TEN_MINUTES, 0.0):
        clock.set(seconds)
        began, began_monotonic = time.time(), time.monotonic()
        process.stdin.write(b"\n")
        day, monotonic = map(float, (await process.stdout.readline()).split())
        assert began_monotonic <= monotonic <= time.monotonic()
        assert began - 1 <= day - seconds <= time.time() + 1
    process.stdin.close()
    await process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="reads a file as Linux has it")
def test_nats_server_loads_no_library_so_that_its_clock_cannot_be_moved() -> None:
    program = Path(server_command(Path(), port=0)[0]).read_bytes()
    [start] = struct.unpack_from("<Q", program, 0x20)
    size, count = struct.unpack_from("<HH", program, 0x36)
    kinds = [struct.unpack_from("<I", program, start + size * n)[0] for n in range(count)]
    assert kinds
    assert INTERPRETER not in kinds
