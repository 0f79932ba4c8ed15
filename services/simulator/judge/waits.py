"""Whether honest tenants wait longer because of an adversary: the same seed was played with and without."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from services.simulator.judge.running_work import Amounts, Job, RunningWork
from services.simulator.judge.tenants import Pool


def waits_kept(
    work: RunningWork, alone: RunningWork, pools: Sequence[Pool], *, bound: timedelta
) -> list[str]:
    """Everybody in `pools` starts at most `bound` later than where they were `alone`.

    Who starts later has not been delayed if others of the pool had the quota meanwhile. Which of them goes
    first hangs on a millisecond: where two pods end in one moment, quota sees one end and lets a small job
    start, or sees both and lets a large one. So a late start is wrong only where it was late beside room.
    """
    wrong: list[str] = []
    starts, before = _starts(work), _waits(alone, _starts(alone))
    now = _waits(work, starts)
    for uid, job in work.jobs.items():
        name = _name(job)
        was, wait = before.get(name), now.get(name)
        pool = _pool_of(work, job, pools)
        if was is None or not any(job.namespace in one.namespaces for one in pools):
            continue
        text = f"alone it waited {was.total_seconds():.1f} s"
        if wait is None or pool is None:
            wrong.append(f"{name} never ran; {text}")
        elif wait > was + bound:
            beside_room = _Queue(work, starts, pool).waited_beside_room(uid)
            if beside_room > bound:
                wrong.append(
                    f"{name} waited {wait.total_seconds():.1f} s, "
                    f"{beside_room.total_seconds():.1f} s of them beside room; {text}"
                )
    return wrong


class _Queue:
    """The jobs of one pool: who runs at each time, and who has to wait for whom."""

    def __init__(self, work: RunningWork, starts: dict[str, datetime], pool: Pool) -> None:
        self._work = work
        self._starts = starts
        self._pool = pool
        self._members = [
            job for job in work.jobs.values() if _pool_of(work, job, (pool,)) is not None
        ]

    def waited_beside_room(self, uid: str) -> timedelta:
        """How long a job waited while it would have fit, and nobody before it in a strict queue."""
        job, until = self._work.jobs[uid], self._starts[uid]
        total = timedelta()
        for since, to, free in self._free():
            begin, end = max(since, job.created_at), min(to, until)
            if begin < end and self._may_start(job, begin, free):
                total += end - begin
        return total

    def _free(self) -> Iterator[tuple[datetime, datetime, Amounts]]:
        """Yield what nobody uses, from one change to the next."""
        members = {job.uid for job in self._members}
        used: dict[str, Amounts] = {}
        since = min(job.created_at for job in self._members)
        for change in self._work.changes:
            free = {
                resource: amount - sum(one.get(resource, 0) for one in used.values())
                for resource, amount in self._pool.nominal.items()
            }
            yield since, change.at, free
            since = change.at
            if change.uid in members:
                used[change.uid] = {
                    resource: change.steady.get(resource, 0) + change.ending.get(resource, 0)
                    for resource in self._pool.nominal
                }

    def _may_start(self, job: Job, at: datetime, free: Amounts) -> bool:
        if not self._fits(job, free):
            return False
        return not self._pool.strict or all(
            self._fits(other, free)
            for other in self._members
            if self._starts.get(other.uid, at) >= at and _is_before(other, job)
        )

    def _fits(self, job: Job, free: Amounts) -> bool:
        asked = _asked(self._work, job)
        return all(asked.get(resource, 0) <= amount for resource, amount in free.items())


def _is_before(other: Job, job: Job) -> bool:
    """Whether it may be before the job in a queue: Kubernetes counts creations in whole seconds."""
    return other.created_at.replace(microsecond=0) <= job.created_at.replace(microsecond=0)


def _asked(work: RunningWork, job: Job) -> Amounts:
    """What all its pods asked for; empty if it never ran."""
    asked: Amounts = {}
    for change in work.changes:
        if change.uid == job.uid:
            for resource, amount in change.steady.items():
                asked[resource] = max(asked.get(resource, 0), amount)
    return asked


def _pool_of(work: RunningWork, job: Job, pools: Sequence[Pool]) -> Pool | None:
    """The pool whose quota the job needs; None if it never ran."""
    asked = _asked(work, job)
    for pool in pools:
        if job.namespace in pool.namespaces and any(one in pool.nominal for one in asked):
            return pool
    return None


def _starts(work: RunningWork) -> dict[str, datetime]:
    first: dict[str, datetime] = {}
    for change in work.changes:
        if change.steady:
            first.setdefault(change.uid, change.at)
    return first


def _waits(work: RunningWork, starts: dict[str, datetime]) -> dict[str, timedelta | None]:
    return {
        _name(job): starts[uid] - job.created_at if uid in starts else None
        for uid, job in work.jobs.items()
    }


def _name(job: Job) -> str:
    return f"{job.kind} {job.namespace}/{job.name}"
