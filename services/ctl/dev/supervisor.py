"""Keeps child processes running, logs their output, and stops them all.

Each child has its own session, so that Ctrl-C reaches only this process, which stops them in order. On
Linux the kernel kills them when this process dies.
"""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Final

from shared.runtime.command import CommandError, Exit
from shared.settings.environment import child_environment

BACKOFF_FIRST_SECONDS: Final = 0.2
BACKOFF_MAX_SECONDS: Final = 10.0
STEADY_SECONDS: Final = 20.0
"""A child that ran this long is restarted quickly again."""

STARTS_BEFORE_READY_MAX: Final = 3
"""A child that ended this often before it was ever ready counts as broken."""

ENDS_MAX: Final = 3
"""After so many quick ends in a row a child counts as crash-looping."""

GRACE_SECONDS: Final = 25.0
"""From SIGTERM to SIGKILL: longer than a service takes to end a term, its handlers and its server."""

SLOW_SECONDS: Final = 2.0
"""After so long a stop is worth a word."""

POLL_SECONDS: Final = 0.05
PROBE_SECONDS: Final = 2.0
LINE_BYTES_MAX: Final = 1 << 20
"""A longer line is copied in parts: it must not fill the memory."""

TAIL_BYTES: Final = 2_000

_PR_SET_PDEATHSIG: Final = 1

Ready = Callable[[], Awaitable[str | None]]
"""Returns None when ready, else the reason why not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """A process to keep running."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to that of this process."""

    ready: Ready
    stop_order: int = 0
    """Lower ones are stopped first; equal ones together."""


class _Child:
    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.process: asyncio.subprocess.Process | None = None
        self.task: asyncio.Task[None] | None = None
        self.starts = 0
        self.was_ready = False
        self.stopping = False
        self.began = 0.0
        """Of this start, in loop time."""

        self.ends = 0
        """In a row, each soon after its start."""

        self.ending = ""

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the child's process group."""
        if self.running and self.process is not None:
            # The process may have ended since the check.
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


class Supervisor:
    """Starts, watches, restarts and stops children."""

    def __init__(
        self,
        *,
        logs: Path | None,
        say: Callable[[str], None],
        echo: Callable[[str, str], None] | None = None,
        on_restart: Callable[[str], Awaitable[None]] | None = None,
        grace_seconds: float = GRACE_SECONDS,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """Logs go to `<logs>/<name>.log`; None: to `echo` only.

        `echo` gets each line, `say` what we do about them, `progress` who is ready, and who is stopping.
        """
        self._logs = logs
        self._say = say
        self._echo = echo
        self._on_restart = on_restart
        self._grace_seconds = grace_seconds
        self._progress = progress
        self._children: dict[str, _Child] = {}

    def start(self, spec: ChildSpec) -> None:
        """Start a child, and restart it whenever it ends."""
        if self._logs is not None:
            self._logs.mkdir(parents=True, exist_ok=True)
        child = _Child(spec)
        self._children[spec.name] = child
        child.task = asyncio.create_task(self._keep(child), name=f"child {spec.name}")

    def pid(self, name: str) -> int | None:
        """The process id of a child, while it runs."""
        child = self._children[name]
        return child.process.pid if child.running and child.process is not None else None

    def starts(self, name: str) -> int:
        """How often a child was started."""
        return self._children[name].starts

    def crash_loop(self, name: str) -> str | None:
        """How a child ends that keeps ending soon after its start; None if it does not."""
        child = self._children[name]
        lived = asyncio.get_running_loop().time() - child.began if child.running else 0.0
        if child.ends < ENDS_MAX or lived > STEADY_SECONDS:
            return None
        return f"it keeps ending ({child.ending})"

    @property
    def names(self) -> tuple[str, ...]:
        """All children, in the order of their start."""
        return tuple(self._children)

    def log_file(self, name: str) -> Path | None:
        """The file with a child's output; None if there is none."""
        return None if self._logs is None else self._logs / f"{name}.log"

    async def wait_ready(self, names: Iterable[str], *, timeout_seconds: float) -> None:
        """Return when all of `names` are ready, and tell of each.

        Raises `CommandError` with the first that is not, and why.
        """
        waiting = dict.fromkeys(names, "it was not asked yet")
        count = len(waiting)
        try:
            async with asyncio.timeout(timeout_seconds):
                while waiting:
                    for name in await self._ask(waiting):
                        del waiting[name]
                        self._tell_ready(name, count - len(waiting), count)
                    await asyncio.sleep(POLL_SECONDS if waiting else 0)
        except TimeoutError as error:
            raise self._not_ready(waiting, f"not ready after {timeout_seconds:.0f} s") from error

    def _tell_ready(self, name: str, number: int, count: int) -> None:
        if self._progress is not None:
            seconds = asyncio.get_running_loop().time() - self._children[name].began
            place = f", {number} of {count}" if count > 1 else ""
            self._progress(f"{name} is ready ({seconds:.1f} s{place})")

    async def _ask(self, waiting: dict[str, str]) -> list[str]:
        """Ask all that are waited for; return those that are ready."""
        ready = []
        for name, last_reason in waiting.items():
            child = self._children[name]
            if child.starts > STARTS_BEFORE_READY_MAX and not child.was_ready:
                raise self._not_ready({name: last_reason}, "it keeps ending")
            reason = "it does not run" if not child.running else await child.spec.ready()
            if reason is None:
                child.was_ready = True
                ready.append(name)
            else:
                waiting[name] = reason
        return ready

    def _not_ready(self, waiting: Mapping[str, str], problem: str) -> CommandError:
        name, reason = next(iter(waiting.items()))
        path, hint = self.log_file(name), ""
        if path is not None:
            tail = path.read_text(errors="replace")[-TAIL_BYTES:].strip() if path.exists() else ""
            hint = f"the end of {path}:\n{tail}" if tail else f"see {path}"
        return CommandError(
            ", ".join(waiting),
            f"{problem} ({reason.strip()})",
            hint=hint,
            status=Exit.FAILED,
        )

    async def drop(self, *names: str) -> None:
        """Stop these children together, and forget them."""
        children = [self._children.pop(name) for name in names]
        for child in children:
            child.stopping = True
        await self._stop_group(children)

    async def stop(self) -> None:
        """Stop all children in order: SIGTERM, and SIGKILL after the grace time."""
        for child in self._children.values():
            child.stopping = True
        for order in sorted({child.spec.stop_order for child in self._children.values()}):
            group = [c for c in self._children.values() if c.spec.stop_order == order]
            await self._stop_group(group)

    async def _stop_group(self, group: list[_Child]) -> None:
        tasks = [child.task for child in group if child.task is not None]
        if not tasks:
            return
        for child in group:
            if child.running:
                child.signal(signal.SIGTERM)
            elif child.task is not None:
                child.task.cancel()  # It waits for its restart.
        slow_seconds = min(SLOW_SECONDS, self._grace_seconds)
        _, late = await asyncio.wait(tasks, timeout=slow_seconds)
        if late:
            names = ", ".join(child.spec.name for child in group if child.task in late)
            if self._progress is not None:
                self._progress(f"waiting for the end of {names}")
            _, late = await asyncio.wait(late, timeout=self._grace_seconds - slow_seconds)
        for child in group:
            if child.task in late:
                self._say(f"{child.spec.name} does not stop: killing it")
                child.signal(signal.SIGKILL)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, child: _Child) -> None:
        backoff = BACKOFF_FIRST_SECONDS
        name = child.spec.name
        while not child.stopping:
            child.began = asyncio.get_running_loop().time()
            if child.starts and self._on_restart is not None:
                await self._on_restart(name)
            status = await self._run(child)
            if child.stopping:
                return
            child.ends, child.ending = child.ends + 1, _ending(status)
            if asyncio.get_running_loop().time() - child.began > STEADY_SECONDS:
                backoff, child.ends = BACKOFF_FIRST_SECONDS, 0
            self._say(f"{name} ended ({child.ending}); starting it again in {backoff:g} s")
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, BACKOFF_MAX_SECONDS)

    async def _run(self, child: _Child) -> int:
        """Run the process once, to its end."""
        child.starts += 1
        child.process = process = await asyncio.create_subprocess_exec(
            *child.spec.argv,
            env=child_environment(child.spec.environment),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=LINE_BYTES_MAX,
            start_new_session=True,
            preexec_fn=_die_with_parent(os.getpid()),
        )
        try:
            assert process.stdout is not None
            path = self.log_file(child.spec.name)
            with nullcontext() if path is None else path.open("ab", buffering=0) as log:
                await self._copy(child.spec.name, process.stdout, log)
            return await process.wait()
        finally:
            child.signal(signal.SIGKILL)  # Also after a cancellation: no child is left.

    async def _copy(self, name: str, output: asyncio.StreamReader, log: FileIO | None) -> None:
        begun = b""  # A line without its end yet.
        while chunk := await output.read(LINE_BYTES_MAX):
            if log is not None:
                with suppress(OSError):  # The disk is full: the child runs on, and is echoed.
                    log.write(chunk)
            *lines, begun = (begun + chunk).split(b"\n")
            self._show(name, lines)
        if begun:
            self._show(name, [begun])

    def _show(self, name: str, lines: list[bytes]) -> None:
        if self._echo is not None:
            for line in lines:
                self._echo(name, line.decode(errors="replace").rstrip("\r"))


def _die_with_parent(parent: int) -> Callable[[], None] | None:
    """What the child runs before it becomes the program: ask to be killed when `parent` dies.

    Linux only; elsewhere a parent that is killed with SIGKILL leaves its children running.
    """
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # The parent died before the call.
            os._exit(int(Exit.FAILED))

    return before_exec


def _ending(status: int) -> str:
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


async def http_status(host: str, port: int, path: str) -> tuple[int, str]:
    """GET a page over plain HTTP; return status and body, or (0, reason) if nobody answers."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
                writer.write(request.encode())
                await writer.drain()
                answer = await reader.read()  # To the end: the body may come behind the head.
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        return 0, str(error) or type(error).__name__
    head, _, body = answer.decode(errors="replace").partition("\r\n\r\n")
    words = head.split(maxsplit=2)
    return (int(words[1]) if len(words) > 1 and words[1].isdigit() else 0), body
