"""Progress of the demo: a table on a terminal, a line every few seconds elsewhere."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from services.ctl.demo.create import Submitted
from services.ctl.demo.load import TIERS
from shared.bus.follow import follow
from shared.bus.port import Bus
from shared.contracts.messages.admissions import HOLDING, Admission, AdmissionState
from shared.contracts.messages.workloads import ENDED_PHASES, WorkloadState

TERMINAL_SECONDS: Final = 0.25
LINE_SECONDS: Final = 3.0


@dataclass(slots=True, kw_only=True)
class _TierCounts:
    """How many workloads of one tier are in each stage."""

    submitted: int = 0
    waiting: int = 0
    admitted: int = 0
    finished: int = 0


class ProgressTracker:
    """Which objects were submitted, and the stage of each, from the views."""

    def __init__(self, expected: int) -> None:
        self.expected = expected
        self.submitted: dict[str, Submitted] = {}
        self.refused: list[Submitted] = []
        self._phases: dict[str, str] = {}
        self._states: dict[str, AdmissionState] = {}
        self.reasons: dict[str, str] = {}
        """uid to why it waits."""

    def submit(self, submitted: Submitted) -> None:
        """Record the API server's answer."""
        if submitted.object is None:
            self.refused.append(submitted)
        else:
            self.submitted[submitted.uid] = submitted

    def observe_workload(self, state: WorkloadState) -> None:
        """Apply a workload state."""
        self._phases[state.uid] = state.phase

    def observe_admission(self, admission: Admission) -> None:
        """Apply a decision."""
        self._states[admission.uid] = admission.state
        self.reasons[admission.uid] = f"{admission.reason} {admission.message}".strip()

    def stage(self, uid: str) -> str:
        """The stage of a workload: waiting, admitted or finished."""
        if self._phases.get(uid) in ENDED_PHASES:
            # It counts as finished once its quota is released.
            return "admitted" if self._states.get(uid) in HOLDING else "finished"
        return "admitted" if self._states.get(uid) in HOLDING else "waiting"

    @property
    def complete(self) -> bool:
        """Whether all objects were submitted and have ended."""
        answered = len(self.submitted) + len(self.refused)
        return answered >= self.expected and not self.unfinished()

    @property
    def progress(self) -> tuple[int, int, int]:
        """Changes with every step of any workload."""
        stages = [self.stage(uid) for uid in self.submitted]
        return len(stages), stages.count("admitted"), stages.count("finished")

    def unfinished(self) -> list[str]:
        """The uids of workloads that have not ended."""
        return [uid for uid in self.submitted if self.stage(uid) != "finished"]

    def rows(self) -> dict[str, _TierCounts]:
        """Counts for each tier, the most important first."""
        rows = {tier: _TierCounts() for tier in TIERS}
        for uid, submitted in self.submitted.items():
            row = rows.setdefault(submitted.arrival.tier, _TierCounts())
            row.submitted += 1
            match self.stage(uid):
                case "finished":
                    row.finished += 1
                case "admitted":
                    row.admitted += 1
                case _:
                    row.waiting += 1
        return rows


async def track(bus: Bus, tracker: ProgressTracker) -> None:
    """Keep the tracker up to date until cancelled."""
    async with asyncio.TaskGroup() as group:
        group.create_task(
            follow(bus, {WorkloadState: lambda state, _: tracker.observe_workload(state)})
        )
        group.create_task(
            follow(bus, {Admission: lambda admission, _: tracker.observe_admission(admission)})
        )


async def show(tracker: ProgressTracker, console: Console) -> None:
    """Show progress until cancelled."""
    if not console.is_terminal:
        await _lines(tracker, console.print)
        return
    began = asyncio.get_running_loop().time()
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(
                    _table(tracker, asyncio.get_running_loop().time() - began), refresh=True
                )
                await asyncio.sleep(TERMINAL_SECONDS)
        finally:
            live.update(_table(tracker, asyncio.get_running_loop().time() - began), refresh=True)


async def _lines(tracker: ProgressTracker, say: Callable[[str], None]) -> None:
    began = asyncio.get_running_loop().time()
    while True:
        say(_line(tracker, asyncio.get_running_loop().time() - began))
        await asyncio.sleep(LINE_SECONDS)


def _line(tracker: ProgressTracker, seconds: float) -> str:
    rows = tracker.rows().values()
    return (
        f"{seconds:5.0f} s  submitted {sum(r.submitted for r in rows)} of {tracker.expected}, "
        f"waiting {sum(r.waiting for r in rows)}, admitted {sum(r.admitted for r in rows)}, "
        f"finished {sum(r.finished for r in rows)}"
    )


def _table(tracker: ProgressTracker, seconds: float) -> Table:
    table = Table(title=f"{seconds:.0f} s", title_justify="left")
    table.add_column("tier")
    for name in ("submitted", "waiting", "admitted", "finished"):
        table.add_column(name, justify="right")
    total = _TierCounts()
    for tier, row in tracker.rows().items():
        table.add_row(tier, *map(str, (row.submitted, row.waiting, row.admitted, row.finished)))
        total.submitted += row.submitted
        total.waiting += row.waiting
        total.admitted += row.admitted
        total.finished += row.finished
    table.add_section()
    cells = (total.submitted, total.waiting, total.admitted, total.finished)
    table.add_row(f"of {tracker.expected}", *map(str, cells))
    return table
