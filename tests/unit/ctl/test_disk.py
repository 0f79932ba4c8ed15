"""`sluice dev` says that its disk is full: what runs below it only gets no answers."""

import asyncio
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from services.ctl.dev.disk import LITTLE_BYTES, watch_disk
from shared.testing.waiting import eventually


class Usage(NamedTuple):
    free: int


async def test_full_disk_and_its_end_are_reported_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [0]
    looked: list[Path] = []

    def usage(directory: Path) -> Usage:
        looked.append(directory)
        return Usage(free[0])

    monkeypatch.setattr(shutil, "disk_usage", usage)
    said: list[str] = []
    watching = asyncio.create_task(watch_disk(tmp_path, said.append, look_seconds=0.001))
    await eventually(lambda: len(looked) > 3)
    free[0] = LITTLE_BYTES
    await eventually(lambda: len(said) > 1)
    watching.cancel()
    assert said == [
        f"{tmp_path}: the disk is full: nothing is stored or admitted until there is room",
        f"{tmp_path}: the disk has room again",
    ]


async def test_disk_with_room_is_not_spoken_of(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await watch_disk(tmp_path, said.append, look_seconds=0.001)
    assert said == []
