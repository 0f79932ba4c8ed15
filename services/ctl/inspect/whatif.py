"""`sluice simulate` and `sluice plan`: simulate the state with and without a change, and compare."""

import json
import sys
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from services.ctl.connect.progress import progress
from services.ctl.connect.reader import open_reader, utc_now
from services.ctl.get.clusters import check_cluster
from services.ctl.get.table import Table
from services.quota.forecast import Arrival, Simulation, Snapshot
from services.quota.forecast.history import UNKNOWN_SECONDS
from services.quota.forecast.snapshot import SECOND
from services.quota.wire.inbound import nanoseconds
from services.whatif.changes import Changes, removable
from services.whatif.manifests import Manifest, load_manifests
from services.whatif.policies import Policies, policies_of
from services.whatif.reading import (
    LOCAL,
    LoadedState,
    RunId,
    from_manifests,
    load,
    read,
    save,
)
from services.whatif.report import (
    HEADER,
    as_json,
    differences,
    outcome_of,
    rows,
    submission_sentences,
    summary_line,
)
from services.whatif.validation.problems import never_starting, not_admitting
from shared.contracts.kube.ages import duration
from shared.contracts.messages.workloads import WorkloadState
from shared.runtime.command import CommandError, Exit

if TYPE_CHECKING:
    from services.classifier.rules import Rules

LONGEST_SECONDS: Final = 3650 * 86400
_READING: Final = "reading what waits and runs"
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The options of both commands."""

    manifests: tuple[Path, ...] = ()
    remove: tuple[str, ...] = ()
    """``<kind>/<name>`` or ``<kind>/<namespace>/<name>``."""

    lost_spoke: str | None = None
    state: Path | None = None
    """A saved state or a folder of manifests. None means the live state."""

    log: timedelta | None = None
    """Replay the submissions of this time."""

    rules: Path | None = None
    configuration: Path | None = None
    """Kueue's Configuration that quota and classifier run with. None means the defaults."""

    cluster: str = "hub"
    url: str | None = None
    directory: Path = field(default_factory=lambda: Path(".sluice"))


async def simulate(what: WhatIf, *, output: str, save_to: Path | None) -> Exit:
    """Print the figures of each queue before and after. Raises `CommandError`.

    Returns `Exit.FAILED` if a new job can never start.
    """
    with progress(_READING) as note:
        comparison = await _prepare(what, save_to=save_to)
        if comparison.guessed:
            taken = duration(UNKNOWN_SECONDS)
            print(
                f"No workload has ended that is known: each is taken to run {taken}.",
                file=sys.stderr,
            )
        note("simulating the queues with the change")
        changes, after = comparison.changes, comparison.after.run()
        note("simulating the queues without the change")
        before = comparison.before.run()
        before_figures, after_figures = (
            outcome_of(simulation, start=comparison.start) for simulation in (before, after)
        )
    submitted = list(submission_sentences(after, changes.added))
    problems = list(comparison.problems(after))
    status = Exit.FAILED if problems else Exit.OK
    if output == "json":
        answer = {
            "changes": changes.notes,
            "before": as_json(before_figures),
            "after": as_json(after_figures),
            "submitted": submitted,
            "problems": problems,
        }
        print(json.dumps(answer, indent=4))
        return status
    for line in (*changes.notes, *submitted, *(f"! {each}" for each in problems)):
        print(line)
    for line in Table(HEADER).lines(list(rows(before_figures, after_figures))):
        print(line)
    print(summary_line(before_figures, after_figures))
    return status


async def plan(what: WhatIf, *, output: str) -> Exit:
    """Print what a change does at once, and which new jobs can never start.

    Returns `Exit.FAILED` if there is anything to print.
    """
    if not (what.manifests or what.remove or what.lost_spoke):
        raise CommandError(
            "sluice plan",
            "no change is given",
            hint="give a file with -f, an object with --remove, or a spoke with --lost-spoke",
        )
    with progress(_READING) as note:
        comparison = await _prepare(what, save_to=None)
        note("comparing the queues without and with the change")
        before, after = (
            simulation.run(until=comparison.start)
            for simulation in (comparison.before, comparison.after)
        )
        found = differences(before, after)
        problems = list(comparison.problems(after))
    if output == "json":
        listed = [
            *(one.as_json() for one in found),
            *({"change": "!", "what": "problem", "problem": problem} for problem in problems),
        ]
        print(json.dumps(listed, indent=4))
    else:
        for line in (*comparison.changes.notes, *map(str, found)):
            print(line)
        for problem in problems:
            print(f"! {problem}")
        print(f"plan: {_counted(found, problems)}")
    return Exit.FAILED if found or problems else Exit.OK


def _counted(found: Sized, problems: Sized) -> str:
    counts = [
        f"{len(each)} {word}" + ("" if len(each) == 1 else "s")
        for each, word in ((found, "difference"), (problems, "problem"))
        if each
    ]
    return ", ".join(counts) or "nothing changes at once"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """Two simulations that are ready to run."""

    before: Simulation
    after: Simulation
    changes: Changes
    changed: Snapshot
    start: int
    cluster: str
    guessed: bool
    """True if no workload has ended, so that run times are a guess."""

    def problems(self, after: Simulation) -> Iterator[str]:
        """What the change leaves without a chance: queues, and new jobs."""
        for _, problem in not_admitting(
            self.before, after, self.changed, self.cluster, guesses=True
        ):
            yield problem
        yield from never_starting(after, self.changed, self.changes.added, guesses=True)


async def _prepare(what: WhatIf, *, save_to: Path | None) -> _Comparison:
    # Wrong input is told before anything is read.
    manifests: list[Manifest] = load_manifests(what.manifests)
    if what.manifests and not manifests:
        raise CommandError(
            " ".join(map(str, what.manifests)), "holds no objects", hint="nothing would change"
        )
    removals = [removable(name) for name in what.remove]
    rules = None if what.rules is None else _rules(what.rules)
    policies = policies_of(what.configuration)
    loaded = await _loaded(what, rules, policies, keep=save_to is not None)
    loaded.snapshot.policy = policies.engine
    if save_to is not None:
        save(loaded, save_to)
    changes = Changes(rules=rules, policy=policies.classifier)
    cluster = LOCAL if what.state is not None and what.state.is_dir() else what.cluster
    check_cluster(cluster, {each.cluster for each in loaded.snapshot.observed.values()})
    changed = loaded.snapshot.copy()
    changes.apply(changed, manifests, cluster=cluster)
    for removal in removals:
        changes.remove(changed, *removal)
    if what.lost_spoke is not None:
        changes.lose_spoke(loaded.snapshot, changed, what.lost_spoke)
    if what.log is None:
        start = nanoseconds(loaded.snapshot.at)
        before, after = (p.simulation(loaded.history) for p in (loaded.snapshot, changed))
    else:
        begin = loaded.snapshot.at - what.log
        start = nanoseconds(begin)
        submitted = [
            loaded.recent(what.log),
            [*_without_spoke(loaded.recent(what.log), what.lost_spoke)],
        ]
        before, after = (
            _replay(snapshot, loaded, begin, states)
            for snapshot, states in zip((loaded.snapshot, changed), submitted, strict=True)
        )
    _refuse_new_problems(loaded.snapshot, changed)
    return _Comparison(
        before=before,
        after=after,
        changes=changes,
        changed=changed,
        start=start,
        cluster=cluster,
        guessed=loaded.history.is_empty,
    )


def _rules(folder: Path) -> "Rules":
    from services.ctl.admin.mutate import load_rules  # noqa: PLC0415 - it imports the webhook

    return load_rules(folder)


async def _loaded(
    what: WhatIf, rules: "Rules | None", policies: Policies, *, keep: bool
) -> LoadedState:
    at = utc_now()
    if what.state is None:
        since = None if what.log is None else at - what.log
        async with open_reader(what.url, what.directory) as reader:
            return await read(reader, at=at, since=since, keep=keep)
    if what.state.is_dir():
        return from_manifests(
            what.state, at=at, changes=Changes(rules=rules, policy=policies.classifier)
        )
    return load(what.state, keep=keep)


def _without_spoke(states: Iterable[WorkloadState], lost: str | None) -> Iterator[WorkloadState]:
    """Submissions except those on a lost spoke, which would not receive its copies."""
    return (state for state in states if state.cluster != lost)


def _replay(
    snapshot: Snapshot, loaded: LoadedState, begin: datetime, submitted: Iterable[WorkloadState]
) -> Simulation:
    """Simulate the submissions since `begin` again, on queues that are empty at first."""
    return Simulation(
        set_up=snapshot.configuration(),
        arrivals=_submissions(snapshot, loaded, submitted),
        start=nanoseconds(begin),
        policy=snapshot.policy,
    )


def _submissions(
    snapshot: Snapshot, loaded: LoadedState, submitted: Iterable[WorkloadState]
) -> Iterator[Arrival]:
    for state in submitted:
        arrival = snapshot.arrival(state, loaded.history)
        if arrival is None:
            continue
        seconds = loaded.seconds.get(RunId.of(state))
        runs = arrival.runs_for if seconds is None else int(seconds * SECOND)
        yield Arrival(fact=arrival.fact, at=arrival.fact.created_at, runs_for=runs)


def span_of(text: str) -> timedelta:
    """Read `90s`, `30m`, `24h` or `7d`. Raises `CommandError`."""
    number, unit = text[:-1], text[-1:]
    seconds = int(number) * UNITS.get(unit, 0) if number.isdecimal() else 0
    if not 0 < seconds <= LONGEST_SECONDS:
        raise CommandError(
            f"--log {text}",
            "is no duration of at least 1s and at most 3650d",
            hint="for example 30m, 24h or 7d",
        )
    return timedelta(seconds=seconds)


def _refuse_new_problems(before: Snapshot, after: Snapshot) -> None:
    """Raise `CommandError` if the change adds an unusable object. Older problems are only reported."""
    new = [problem for problem in after.problems if problem not in before.problems]
    if new:
        raise CommandError("the change", new[0])
