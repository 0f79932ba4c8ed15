"""The two commands: read what is, change a copy of it, play both, and say what differs."""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from services.classifier.projection.policy import Policy as Counted
from services.classifier.rules import Rules
from services.ctl.admin.mutate import load_rules
from services.ctl.connect.reader import current, lookout
from services.ctl.get.table import Table
from services.quota.forecast import Arrival, Simulation, Snapshot
from services.quota.forecast.history import UNKNOWN_SECONDS
from services.quota.forecast.snapshot import SECOND
from services.quota.policy import policy_of
from services.quota.wire.inbound import nanoseconds
from services.whatif.changes import Changes, removable
from services.whatif.manifests import Manifest, load_manifests
from services.whatif.reading import (
    LOCAL,
    Known,
    configured,
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
    told,
    total,
)
from shared.contracts.kube.ages import duration
from shared.contracts.messages.workloads import WorkloadState
from shared.runtime.command import CommandError, Exit

__all__ = ["WhatIf", "plan", "simulate", "span_of"]

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What was asked."""

    manifests: tuple[Path, ...] = ()
    remove: tuple[str, ...] = ()
    """``<kind>/<name>`` or ``<kind>/<namespace>/<name>``."""

    lost_spoke: str | None = None
    state: Path | None = None
    """A saved state or a folder of manifests; None: the live state."""

    log: timedelta | None = None
    """Play what was submitted in this time once more, from its beginning."""

    rules: Path | None = None
    configuration: Path | None = None
    """Kueue's Configuration that quota and classifier run with; None: all is as by default."""

    cluster: str = "hub"
    url: str | None = None
    directory: Path = field(default_factory=lambda: Path(".sluice"))


async def simulate(what: WhatIf, *, output: str, save_to: Path | None) -> None:
    """Print what each queue would see before and after. Raises `CommandError`."""
    both = await _both(what, save_to=save_to)
    if both.guessed:
        taken = duration(UNKNOWN_SECONDS)
        print(
            f"No workload has ended that is known: each is taken to run {taken}.", file=sys.stderr
        )
    changes, after = both.changes, both.after.run()
    was, is_ = (outcome_of(course, start=both.start) for course in (both.before.run(), after))
    new = [after.results[ident] for ident in changes.added if ident in after.results]
    if output == "json":
        answer = {
            "changes": changes.notes,
            "before": as_json(was),
            "after": as_json(is_),
            "submitted": list(told(new)),
        }
        print(json.dumps(answer, indent=4))
        return
    for line in (*changes.notes, *told(new)):
        print(line)
    for line in Table(HEADER).lines(list(rows(was, is_))):
        print(line)
    print(total(was, is_))


async def plan(what: WhatIf, *, output: str) -> Exit:
    """Print what a change of configuration does at once; `Exit.FAILED` if it does anything."""
    both = await _both(what, save_to=None)
    before, after = (course.run(until=both.start) for course in (both.before, both.after))
    found = differences(before, after)
    if output == "json":
        print(json.dumps([one.as_json() for one in found], indent=4))
    else:
        for line in (*both.changes.notes, *map(str, found)):
            print(line)
        count = "1 difference" if len(found) == 1 else f"{len(found)} differences"
        print(f"plan: {count}" if found else "plan: nothing changes at once")
    return Exit.FAILED if found else Exit.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class _Both:
    """What is played."""

    before: Simulation
    after: Simulation
    changes: Changes
    start: int
    guessed: bool
    """Nothing has ended from which run times could be learned."""


async def _both(what: WhatIf, *, save_to: Path | None) -> _Both:
    rules = None if what.rules is None else load_rules(what.rules)
    configuration = configured(what.configuration)
    counted = Counted.of(configuration)
    known = await _known(what, rules, counted, keep=save_to is not None)
    known.picture.policy = policy_of(configuration)
    if save_to is not None:
        save(known, save_to)
    changes = Changes(rules=rules, policy=counted)
    cluster = LOCAL if what.state is not None and what.state.is_dir() else what.cluster
    changed = known.picture.copy()
    manifests: list[Manifest] = load_manifests(what.manifests) if what.manifests else []
    changes.apply(changed, manifests, cluster=cluster)
    for name in what.remove:
        changes.remove(changed, *removable(name))
    if what.lost_spoke is not None:
        changes.lose_spoke(known.picture, changed, what.lost_spoke)
    if what.log is None:
        start = nanoseconds(known.picture.at)
        before, after = (p.simulation(known.past) for p in (known.picture, changed))
    else:
        begin = known.picture.at - what.log
        start = nanoseconds(begin)
        submitted = [known.recent(what.log), [*_elsewhere(known.recent(what.log), what.lost_spoke)]]
        before, after = (
            _again(picture, known, begin, states)
            for picture, states in zip((known.picture, changed), submitted, strict=True)
        )
    _complain(known.picture, changed)
    return _Both(
        before=before, after=after, changes=changes, start=start, guessed=known.past.is_empty
    )


async def _known(what: WhatIf, rules: Rules | None, counted: Counted, *, keep: bool) -> Known:
    at = current()
    if what.state is None:
        since = None if what.log is None else at - what.log
        async with lookout(what.url, what.directory) as look:
            return await read(look, at=at, since=since, keep=keep)
    if what.state.is_dir():
        return from_manifests(what.state, at=at, changes=Changes(rules=rules, policy=counted))
    return load(what.state, keep=keep)


def _elsewhere(states: Iterable[WorkloadState], lost: str | None) -> Iterator[WorkloadState]:
    """What was submitted anywhere but on a spoke that is lost: its copies would not come there."""
    return (state for state in states if state.cluster != lost)


def _again(
    picture: Snapshot, known: Known, begin: datetime, submitted: Iterable[WorkloadState]
) -> Simulation:
    """What was submitted since `begin` once more, on queues that were empty then."""
    return Simulation(
        set_up=picture.configuration(),
        arrivals=_submissions(picture, known, submitted),
        start=nanoseconds(begin),
        policy=picture.policy,
    )


def _submissions(
    picture: Snapshot, known: Known, submitted: Iterable[WorkloadState]
) -> Iterator[Arrival]:
    for state in submitted:
        arrival = picture.arrival(state, known.past)
        if arrival is None:
            continue
        seconds = known.seconds.get((state.cluster, f"{state.namespace}/{state.name}", state.uid))
        runs = arrival.runs_for if seconds is None else int(seconds * SECOND)
        yield Arrival(fact=arrival.fact, at=arrival.fact.created_at, runs_for=runs)


def span_of(text: str) -> timedelta:
    """Read `90s`, `30m`, `24h` or `7d`. Raises `CommandError`."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS or not number.isdecimal() or int(number) == 0:
        raise CommandError(f"--log {text}", "is no duration", hint="for example 30m, 24h or 7d")
    return timedelta(seconds=int(number) * UNITS[unit])


def _complain(before: Snapshot, after: Snapshot) -> None:
    """What was there already and cannot be used is only told; what the change brings is refused."""
    new = [problem for problem in after.problems if problem not in before.problems]
    if new:
        raise CommandError("the change", new[0])
