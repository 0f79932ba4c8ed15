"""Children are kept running, and none is left behind."""

import asyncio
import io
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from services.ctl.dev.signals import until_signalled
from services.ctl.dev.supervisor import ChildSpec, Supervisor, http_status
from services.ctl.pairs import program
from shared.runtime.command import CommandError, Exit
from shared.runtime.service import Parts
from shared.telemetry.tracing import NO_TRACING
from shared.testing.waiting import eventually
from shared.testing.world.memory_bus import MemoryBus
from shared.testing.world.memory_server import MemoryServer

SLEEPER = "import time; print('up', flush=True); time.sleep(60)"
SPEAKER = "import time\nwhile True: print('up', flush=True); time.sleep(0.1)"
DEAF = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('up', flush=True); time.sleep(60)"
)


@asynccontextmanager
async def supervising(
    tmp_path: Path,
    *,
    grace_seconds: float = 5.0,
    said: list[str] | None = None,
    progress: list[str] | None = None,
) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(
        logs=tmp_path,
        say=(said if said is not None else []).append,
        grace_seconds=grace_seconds,
        progress=None if progress is None else progress.append,
    )
    try:
        yield supervisor
    finally:
        await supervisor.stop()


def child(tmp_path: Path, program: str, *, name: str = "child", stop_order: int = 0) -> ChildSpec:
    log = tmp_path / f"{name}.log"

    async def ready() -> str | None:
        return None if log.exists() and "up" in log.read_text() else "it has not said so"

    return ChildSpec(
        name=name, argv=(sys.executable, "-c", program), ready=ready, stop_order=stop_order
    )


async def at_once() -> None:
    """The child is ready when it runs."""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_killed_child_is_restarted(tmp_path: Path) -> None:
    said: list[str] = []
    async with supervising(tmp_path, said=said) as supervisor:
        supervisor.start(child(tmp_path, SLEEPER))
        await supervisor.wait_ready(["child"], timeout_seconds=60)
        first = supervisor.pid("child")
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: supervisor.starts("child") == 2 and supervisor.pid("child"))
        assert supervisor.pid("child") != first
    assert said == ["child ended (SIGKILL); starting it again in 0.2 s"]


async def test_stop_kills_a_child_that_ignores_sigterm(tmp_path: Path) -> None:
    said: list[str] = []
    progress: list[str] = []
    async with supervising(tmp_path, grace_seconds=1.0, said=said, progress=progress) as supervisor:
        supervisor.start(child(tmp_path, SLEEPER, name="polite"))
        supervisor.start(child(tmp_path, DEAF, name="deaf"))
        await supervisor.wait_ready(["polite", "deaf"], timeout_seconds=60)
        pids = [supervisor.pid("polite"), supervisor.pid("deaf")]
    assert said == ["deaf does not stop: killing it"]
    *ready, waits = (line.split(" (")[0] for line in progress)
    assert sorted(ready) == ["deaf is ready", "polite is ready"]
    assert waits == "waiting for the end of deaf"
    assert not any(alive(pid) for pid in pids if pid)


async def test_children_stop_in_stop_order(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    program = (
        "import signal, sys, time\n"
        "def end(*_):\n"
        f"    open({str(marks)!r}, 'a').write(sys.argv[1] + ' '); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); print('up', flush=True); time.sleep(60)\n"
    )
    async with supervising(tmp_path) as supervisor:
        for name, order in (("broker", 2), ("cluster", 1), ("service", 0)):
            spec = child(tmp_path, program, name=name, stop_order=order)
            supervisor.start(
                ChildSpec(name=name, argv=(*spec.argv, name), ready=spec.ready, stop_order=order)
            )
        await supervisor.wait_ready(["broker", "cluster", "service"], timeout_seconds=60)
    assert marks.read_text().split() == ["service", "cluster", "broker"]


async def test_crash_looping_child_fails_start_with_the_end_of_its_log(tmp_path: Path) -> None:
    async with supervising(tmp_path) as supervisor:
        supervisor.start(child(tmp_path, "raise SystemExit('no such setting')"))
        log = tmp_path / "child.log"
        await eventually(lambda: log.exists() and "no such setting" in log.read_text())
        with pytest.raises(CommandError, match="child: ") as caught:
            await supervisor.wait_ready(["child"], timeout_seconds=1)
        assert "no such setting" in caught.value.hint


async def test_crash_loop_needs_more_than_one_quick_end(
    tmp_path: Path,
) -> None:
    async with supervising(tmp_path) as supervisor:
        supervisor.start(child(tmp_path, "raise SystemExit(7)", name="ill"))
        supervisor.start(child(tmp_path, SLEEPER, name="well"))
        await supervisor.wait_ready(["well"], timeout_seconds=60)
        pid = supervisor.pid("well")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: supervisor.starts("well") == 2 and supervisor.starts("ill") > 3)
        assert supervisor.crash_loop("ill") == "it keeps ending (status 7)"
        assert supervisor.crash_loop("well") is None


async def test_child_output_goes_to_log_and_echo(tmp_path: Path) -> None:
    shown: list[tuple[str, str]] = []
    supervisor = Supervisor(
        logs=tmp_path, say=lambda _: None, echo=lambda name, line: shown.append((name, line))
    )
    supervisor.start(child(tmp_path, SLEEPER))
    await supervisor.wait_ready(["child"], timeout_seconds=60)
    await eventually(lambda: shown)
    await supervisor.stop()
    assert shown == [("child", "up")]
    log = supervisor.log_file("child")
    assert log is not None
    assert log.read_text() == "up\n"


class Unread(io.StringIO):
    """Standard output whose reader has gone."""

    tried = 0

    def write(self, _text: str) -> int:
        self.tried += 1
        raise BrokenPipeError


async def test_child_runs_on_when_its_output_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stdout = Unread()
    monkeypatch.setattr(sys, "stdout", stdout)
    pairs: Any = program().build(
        Parts(
            bus=MemoryBus(MemoryServer(), instance="pairs"),
            tracing=NO_TRACING,
            on_stop=lambda _: None,
            beside=lambda _: None,
        )
    )
    supervisor: Supervisor = pairs._supervisor
    supervisor.start(ChildSpec(name="child", argv=(sys.executable, "-c", SPEAKER), ready=at_once))
    try:
        await eventually(lambda: stdout.tried > 1)
        assert supervisor.starts("child") == 1
    finally:
        await supervisor.stop()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk as Linux has it")
async def test_child_runs_on_when_its_log_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "child.log").symlink_to("/dev/full")
    shown: list[str] = []
    supervisor = Supervisor(
        logs=tmp_path, say=shown.append, echo=lambda _, line: shown.append(line)
    )
    supervisor.start(ChildSpec(name="child", argv=(sys.executable, "-c", SPEAKER), ready=at_once))
    await eventually(lambda: len(shown) > 1)
    await supervisor.stop()
    assert set(shown) == {"up"}


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux's")
async def test_children_die_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    program = (
        "import asyncio, pathlib, sys\n"
        "from services.ctl.dev.supervisor import ChildSpec, Supervisor\n"
        "async def ready(): return None\n"
        "async def main():\n"
        "    s = Supervisor(logs=pathlib.Path(sys.argv[1]), say=print)\n"
        "    argv = (sys.executable, '-c', 'import time; time.sleep(60)')\n"
        "    s.start(ChildSpec(name='child', argv=argv, ready=ready))\n"
        "    await s.wait_ready(['child'], timeout_seconds=60)\n"
        "    print(s.pid('child'), flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    await parent.wait()
    await eventually(lambda: not alive(pid))


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, Exit.INTERRUPTED), (signal.SIGTERM, Exit.OK)]
)
async def test_signal_ends_the_work_with_its_own_status(
    number: signal.Signals, status: Exit
) -> None:
    cleaned: list[str] = []

    async def work() -> int:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            cleaned.append("yes")
        return Exit.FAILED

    assert await until_signalled(work(), terminated=Exit.OK) == status
    assert cleaned == ["yes"]


async def test_body_that_comes_behind_its_head_is_read() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 6\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0)
        writer.write(b"rules\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await http_status("127.0.0.1", port, "/readyz") == (503, "rules\n")
