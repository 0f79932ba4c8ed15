"""Draws which faults and features a world of the swarm has.

Swarm testing: a world with everything on hides faults that need some of it off, so each is drawn apart
(Groce et al., "Swarm Testing", ISSTA 2012).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from random import Random
from typing import Any, Final

from services.simulator.scenarios.basic import faults_of
from shared.testing.world.world import Faults

FAULT_SECONDS: Final = 100.0

ONE_IN_RARE: Final = 20
"""A deep backlog and a long history are each in one of so many worlds: they cost the most."""

BACKLOG: Final = 2_000
HISTORY: Final = 500

_UNTIL: Final = "until_seconds"

SERVICES: Final = ("watcher", "classifier", "quota", "patcher", "dispatcher", "provisioner")


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What a world has."""

    faults: Faults
    replicas: dict[str, int]
    """Number of processes of each service."""

    preemption: bool = False
    """Queues preempt lower priorities, and reclaim what their cohort borrowed."""

    nested_cohorts: bool = False
    """The queues of the teams are in cohorts of their own below one, with lending limits."""

    checks: bool = False
    """One queue has an admission check."""

    recreation: bool = False
    """Users create jobs again under the name of one that they deleted."""

    deactivation: bool = False
    """Users deactivate and reactivate workloads."""

    replicated: bool = False
    """NATS has three servers: no fence by the term."""

    leader_pauses: bool = False
    """The process that leads quota is paused for longer than its lease."""

    leader_holds: bool = False
    """What the process that leads quota sends arrives after its lease is over; it decides much meanwhile."""

    slow_views: bool = False
    """Views are seconds behind their logs for a while, each by a time of its own."""

    handovers: bool = False
    """A leader dies right after it has evicted a job that nobody has seen run; there are checks."""

    full_disks: bool = False
    """Logs are full, or nearly full, for a while."""

    truncation: bool = False
    """Logs lose their oldest messages."""

    refusals: bool = False
    """The cluster refuses to start some jobs for good."""

    mixed_versions: bool = False
    """Some processes are of a release that adds fields to every message."""

    upgrade: bool = False
    """Processes are replaced, one by one, by those of a release that raised the schema of messages."""

    downgrade: bool = False
    """The same, and then all of them by those of this release again."""

    elections: bool = False
    """Three servers elect anew who leads a log, or a view: for a while nobody stores or reads there."""

    stale_reads: bool = False
    """One of three servers is cut off, and answers with what it had until it knows that others lead."""

    late_releases: bool = False
    """Users deactivate a workload while the release of its job is on its way to the cluster."""

    late_refusals: bool = False
    """The cluster refuses to start a job for a moment, while another release of it is on its way."""

    late_observations: bool = False
    """A watcher is deposed while the first message about a job is on its way, and the job is deleted."""

    two_leaders: bool = False
    """NATS forgets who leads quota: several replicas begin a term at once, behind a view that is late."""

    late_decisions: bool = False
    """NATS forgets who leads quota: a replica begins a term while the leader before it decides."""

    power_cuts: bool = False
    """The server loses its power, and each log and view another part of what was stored last."""

    set_back: bool = False
    """With `power_cuts`: the disk is one of some seconds ago, so that logs and views lost the same tail."""

    revivals: bool = False
    """The server is killed after ended work has left the views, and brings back what was before."""

    garbage: bool = False
    """A program that is not ours writes messages that nobody can read."""

    foreign_decisions: bool = False
    """Such a message takes the sequence that a decision predicts while it is on its way."""

    backlog: int = 0
    """Jobs that only wait."""

    history: int = 0
    """Workloads that ended long ago."""

    def described(self) -> str:
        """The names of what is on, for the log of the world."""
        on = [field.name for field in fields(self) if field.name not in {"faults", "replicas"}]
        several = [f"{count} of {name}" for name, count in self.replicas.items() if count > 1]
        return ", ".join([*(name for name in on if getattr(self, name)), *several]) or "nothing"


def drawn(random: Random, later: Random) -> Features:
    """Draw a world. `later` draws the features that were added later: a seed keeps the rest of its world."""

    def on(probability: float = 1 / 3) -> bool:
        return random.random() < probability

    features = Features(
        faults=_faults(random),
        replicas={service: random.choice((1, 1, 2, 3)) for service in SERVICES},
        preemption=on(1 / 2),
        nested_cohorts=on(),
        checks=on(),
        recreation=on(1 / 2),
        deactivation=on(),
        replicated=on(1 / 2),
        leader_pauses=on(1 / 2),
        full_disks=on(),
        truncation=on(),
        refusals=on(),
        mixed_versions=on(),
        garbage=on(1 / 4),
        backlog=BACKLOG if on(1 / ONE_IN_RARE) else 0,
        history=HISTORY if on(1 / ONE_IN_RARE) else 0,
        leader_holds=on(),
    )
    handovers = later.random() < 1 / 6
    slow_views, rollout = later.random() < 1 / 3, later.random()
    return replace(
        features,
        # What a foreign message hides in a view is in the log alone, until its writer says it again.
        truncation=features.truncation and not features.garbage,
        handovers=handovers,
        checks=features.checks or handovers,
        slow_views=slow_views,
        upgrade=rollout < 1 / 12,
        downgrade=1 / 12 <= rollout < 1 / 6,
        power_cuts=later.random() < 1 / 8,
        elections=features.replicated and later.random() < 1 / 2,
        stale_reads=features.replicated and later.random() < 1 / 3,
        # On three servers a window of decisions may stand on the log without its first one (ADR 100).
        foreign_decisions=features.garbage and later.random() < 1 / 3 and not features.replicated,
        set_back=later.random() < 1 / 4,
        late_releases=later.random() < 1 / 6,
        late_observations=features.replicated and later.random() < 1 / 6,
        two_leaders=later.random() < 1 / 6,
        revivals=later.random() < 1 / 6 and _may_revive(features, rollout),
    )


def _may_revive(features: Features, rollout: float) -> bool:
    """Whether the logs tell the end of what a killed server brings back, in words of this release."""
    return rollout >= 1 / 6 and not (features.full_disks or features.truncation)


_RARE: Final = ("truncation", "garbage", "foreign_decisions", "late_observations", "two_leaders")
"""Off in a world with a focus, unless that is the focus."""


def focused(features: Features, focus: str) -> Features:
    """Return the features with those always on that try one group of mechanisms."""
    more = FOCUSES[focus]
    own = {name: value for name, value in more.items() if name not in {"faults", "replicas"}}
    faults = replace(features.faults, until_seconds=FAULT_SECONDS, **more.get("faults", {}))
    replicas = features.replicas | more.get("replicas", {})
    rare = {"backlog": 0, "history": 0, **dict.fromkeys(_RARE, False)}
    return replace(features, faults=faults, replicas=replicas, **{**rare, **own})


_FAILOVER: Final[dict[str, Any]] = {
    "leader_pauses": True,
    "leader_holds": True,
    "preemption": True,
    "replicas": {"quota": 3},
    "faults": {"pause_every_seconds": 20.0, "hold_every_seconds": 8.0, "kill_every_seconds": 15.0},
}
_RELISTS: Final[dict[str, Any]] = {
    "watch_break": 0.1,
    "expired": 0.5,
    "kill_every_seconds": 6.0,
    "partition_every_seconds": 10.0,
    "hold_every_seconds": 10.0,
}

FOCUSES: Final[Mapping[str, dict[str, Any]]] = {
    "failover": _FAILOVER | {"replicated": False},  # Late views in one of three.
    # A leader that begins late leaves none behind whom a stale decision could be stored.
    "failover-replicated": _FAILOVER | {"replicated": True, "slow_views": False},
    "handovers": {
        "handovers": True,
        "checks": True,
        "preemption": True,
        "replicas": {"quota": 2},
        "faults": {"kill_every_seconds": 0.0, "partition_every_seconds": 0.0},
    },
    "relists": {"recreation": True, "replicas": {"watcher": 3}, "faults": _RELISTS},
    "projections": {
        "recreation": True,
        "leader_pauses": True,
        "replicas": {"classifier": 3},
        "faults": {"pause_every_seconds": 8.0, "hold_every_seconds": 8.0, "delay": 0.05},
    },
    "preemption": {
        "preemption": True,
        "deactivation": True,
        "faults": {"hold_every_seconds": 6.0, "delay": 0.1, "duplicate": 0.1},
    },
    "replicas": {
        "preemption": True,
        "deactivation": True,
        "replicas": dict.fromkeys(SERVICES, 3),
        "faults": {"hold_every_seconds": 6.0, "kill_every_seconds": 6.0, "duplicate": 0.1},
    },
    "recreation": {
        "recreation": True,
        "faults": {"hold_every_seconds": 4.0, "lost_answer": 0.05, "kill_every_seconds": 10.0},
    },
    "disks": {"full_disks": True},
    "garbage": {"garbage": True},
    "foreign-decisions": {"garbage": True, "foreign_decisions": True, "replicated": False},
    "refusals": {"refusals": True},
    "power-cuts": {"power_cuts": True},
    "set-back": {  # Nobody lists anew, unless a writer finds that its log was set back.
        "power_cuts": True,
        "set_back": True,
        **dict.fromkeys(("leader_pauses", "leader_holds", "upgrade", "downgrade"), False),
        "replicas": dict.fromkeys(SERVICES, 1),
        "faults": {name: value for name, value in asdict(Faults()).items() if name != _UNTIL},
    },
    "revivals": {  # A leader that lives for long enough to delete what has ended.
        "revivals": True,
        "recreation": True,
        "full_disks": False,
        **dict.fromkeys(("leader_pauses", "leader_holds", "upgrade", "downgrade"), False),
        "replicas": {"quota": 2},
        "faults": {"kill_every_seconds": 0.0, "bus_restart_every_seconds": 0.0},
    },
    "late-decisions": {
        "late_decisions": True,
        **dict.fromkeys(("checks", "handovers", "upgrade", "downgrade", "power_cuts"), False),
        **dict.fromkeys(("leader_pauses", "leader_holds", "slow_views", "revivals"), False),
        **dict.fromkeys(("full_disks", "elections", "stale_reads"), False),
        "replicas": {"quota": 2},
        "faults": {name: value for name, value in asdict(Faults()).items() if name != _UNTIL},
    },
    "two-leaders": {"two_leaders": True, "replicas": {"quota": 3}},
    "elections": {"elections": True, "replicated": True, "replicas": {"quota": 3}},
    "stale-reads": {
        "stale_reads": True,
        "replicated": True,
        "preemption": True,
        "deactivation": False,
        **dict.fromkeys(
            ("checks", "handovers", "elections", "leader_pauses", "leader_holds"), False
        ),
        "replicas": {"quota": 2, "patcher": 3},
        "faults": {"hold_every_seconds": 0.0, "pause_every_seconds": 0.0, "delay": 0.0},
    },
    "late-releases": {
        "late_releases": True,
        "preemption": True,
        "checks": False,
        "replicas": {"patcher": 3},
    },
    "late-refusals": {
        "late_refusals": True,
        "refusals": False,
        "checks": False,
        "replicas": {"patcher": 3},
    },
    "late-observations": {
        "late_observations": True,
        "replicated": True,
        **dict.fromkeys(("leader_pauses", "leader_holds", "upgrade", "downgrade"), False),
        "faults": {name: value for name, value in asdict(Faults()).items() if name != _UNTIL},
    },
    "upgrades": {"upgrade": True, "downgrade": False, "replicas": dict.fromkeys(SERVICES, 2)},
    "downgrades": {"upgrade": False, "downgrade": True, "replicas": dict.fromkeys(SERVICES, 2)},
}
"""By name, what is always on. Each is a scenario of that name."""


def _faults(random: Random) -> Faults:
    drawn_faults = replace(faults_of(random), until_seconds=FAULT_SECONDS)
    if random.random() < 1 / 2:
        drawn_faults = replace(drawn_faults, pause_every_seconds=random.choice((15.0, 40.0)))
    if random.random() < 1 / 2:
        drawn_faults = replace(drawn_faults, hold_every_seconds=random.choice((10.0, 30.0)))
    if random.random() < 1 / 4:
        drawn_faults = replace(drawn_faults, clock_jump_every_seconds=25.0)
    return drawn_faults
