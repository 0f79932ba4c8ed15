"""Runs the demo: the system, the load, the summary, the checks. Holds the demo's only clock."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console

from services.ctl.connect.bus import connected
from services.ctl.demo.cases import load_cases, run_cases
from services.ctl.demo.check import judge, until_given_back
from services.ctl.demo.create import create_all
from services.ctl.demo.load import make_load
from services.ctl.demo.progress import ProgressTracker, show, track
from services.ctl.demo.results import read_results
from services.ctl.demo.spokes import run_spokes
from services.ctl.demo.summary import print_summary
from services.ctl.dev.app import EXAMPLE, DevOptions, Running, addresses, running
from services.ctl.dev.signals import until_signalled
from services.ctl.setup.spokes import SPOKES_EXAMPLE
from shared.kube.port import KubeError
from shared.runtime.command import CommandError, Exit

STUCK_SECONDS: Final = 60.0
"""Without any progress for this time, the demo gives up."""

POLL_SECONDS: Final = 0.1
LEFT_MAX: Final = 5
QUEUES_RUNS_MIN: Final = 400
"""Twice the 200 slots of the example: fewer PipelineRuns might all run at once."""

PLAIN_WIDTH: Final = 120
"""Width of tables where the output is no terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """The options of the demo."""

    seed: int = 1
    runs: int = 600
    jobs: int = 100
    speed: float = 60.0
    pipelineruns: Path | None = None
    spokes: int = 0
    secure: bool = False
    keep: bool = False
    directory: Path = Path(".sluice")


def _now() -> datetime:
    return datetime.now(UTC)


async def demonstrate(options: DemoOptions) -> int:
    """Run the demo. The last line and the exit status say whether all checks passed."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    return await until_signalled(_Demo(options, console).run(), terminated=Exit.INTERRUPTED)


class _Demo:
    def __init__(self, options: DemoOptions, console: Console) -> None:
        self._options = options
        self._console = console
        self._began = asyncio.get_running_loop().time()

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    async def run(self) -> int:
        options = self._options
        cases = None if options.pipelineruns is None else load_cases(options.pipelineruns)
        self._say("demo: starting NATS, a simulated cluster and all services")
        dev = DevOptions(
            directory=options.directory,
            manifests=() if options.spokes else (EXAMPLE,),
            rules=(SPOKES_EXAMPLE if options.spokes else EXAMPLE) / "classifier",
            spokes=options.spokes,
            secure=options.secure,
            speed=options.speed,
            seed=options.seed,
        )
        verdict, status = "demo: failed: interrupted", Exit.FAILED
        try:
            async with running(dev, lambda text: self._say(f"demo: {text}")) as system:
                for line in addresses(system)[:-1]:
                    self._say(f"demo: {line}")
                try:
                    if options.spokes:
                        wrong = await run_spokes(system, options.seed, now=_now, say=self._say)
                    elif cases is None:
                        wrong = await self._load(system)
                    else:
                        wrong = await run_cases(system, cases, now=_now, say=self._say)
                except (CommandError, KubeError) as error:
                    wrong = [str(error)]
                verdict = self._verdict(wrong)
                if options.keep:
                    self._say(verdict)
                    self._say("demo: left running; Ctrl-C stops it")
                    await asyncio.Event().wait()
        except CommandError as error:
            problem = f"{error}; {error.hint}" if error.hint else str(error)
            verdict, status = f"demo: failed: {problem}", error.status
        except asyncio.CancelledError:
            if not options.keep:
                verdict = "demo: failed: interrupted"
        self._say(verdict)
        return Exit.OK if verdict.startswith("demo: ok") else status

    def _verdict(self, wrong: list[str]) -> str:
        seconds = asyncio.get_running_loop().time() - self._began
        if wrong:
            return f"demo: failed: {'; '.join(wrong)} ({seconds:.0f} s)"
        return f"demo: ok: all checks passed ({seconds:.0f} s)"

    async def _load(self, system: Running) -> list[str]:
        """Run the generated load; return the names of the checks that failed."""
        options = self._options
        arrivals = make_load(seed=options.seed, runs=options.runs, jobs=options.jobs)
        self._say(
            f"demo: creating {options.runs} PipelineRuns and {options.jobs} Jobs, seed "
            f"{options.seed}; simulated time runs {options.speed:g} times as fast"
        )
        tracker = ProgressTracker(len(arrivals))
        async with connected(system.nats_url, access=system.access) as bus:
            async with _background(track(bus, tracker), show(tracker, self._console)):
                kube = system.kube()
                try:
                    await create_all(kube, arrivals, now=_now, on_submitted=tracker.submit)
                finally:
                    await kube.close()
                stuck = await _until_complete(tracker)
            await until_given_back(bus)
            result = await read_results(bus, tracker.submitted, tuple(tracker.refused))
        if stuck:
            self._say(f"no progress for {STUCK_SECONDS:g} s; not ended:")
            for uid in tracker.unfinished()[:LEFT_MAX]:
                name, reason = tracker.submitted[uid].name, tracker.reasons.get(uid, "no decision")
                self._say(f"  {name}: {tracker.stage(uid)}: {reason}")
        print_summary(result, self._console)
        self._say("checks, from the log alone:")
        queues = options.runs >= QUEUES_RUNS_MIN
        verdicts = judge(result, queues=queues)
        for verdict in verdicts:
            for line in verdict.lines():
                self._say(line)
        if not queues:
            self._say(
                f"  (below {QUEUES_RUNS_MIN} PipelineRuns no queues form: waits not compared)"
            )
        return [verdict.name for verdict in verdicts if verdict.wrong]


async def _until_complete(tracker: ProgressTracker) -> bool:
    """Wait until all workloads have ended; return True if there is no progress any more."""
    loop = asyncio.get_running_loop()
    seen, since = tracker.progress, loop.time()
    while not tracker.complete:
        await asyncio.sleep(POLL_SECONDS)
        if tracker.progress != seen:
            seen, since = tracker.progress, loop.time()
        elif loop.time() - since > STUCK_SECONDS:
            return True
    return False


@asynccontextmanager
async def _background(*work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run `work` beside the body, and cancel it when the body ends."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
