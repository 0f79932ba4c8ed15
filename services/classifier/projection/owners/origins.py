"""Remembers by which controller each job was made: its tenant may write another one later. Pure.

A job that a managed controller made runs on that controller's quota. Whoever takes the reference away, or
points it elsewhere, lets the job out: nothing that is observed of the job tells any more whose quota it uses.
"""

from typing import NamedTuple

from shared.contracts.kube.bodies import Body
from shared.contracts.messages.observed import Observed
from shared.contracts.refs import ObjectRef

ABOVE_MAX = 4
"""Controllers between a job and the one that has quota for it: more than any kind has."""


class _Maker(NamedTuple):
    group: str
    kind: str
    name: str
    uid: str


class _MadeJob(NamedTuple):
    uid: str
    version: str
    """Its resource version when it was observed first."""


class Origins:
    """The jobs of one cluster that a controller made, and which of these controllers are managed."""

    def __init__(self) -> None:
        self._jobs: dict[ObjectRef, _MadeJob] = {}
        """The jobs that a controller made."""

        self._makers: dict[str, _Maker] = {}
        """Uid of each of these jobs to the controller that it named first."""

        self._made: dict[str, int] = {}
        """Uid of each of these controllers to the number of jobs that it made."""

        self._queues: dict[str, str] = {}
        """Uid of each managed job to its queue, as long as there is one that it made."""

        self._ended: set[str] = set()
        """Uids of controllers that are managed no more."""

        self._came_to_rest: set[str] = set()
        """Uids of jobs that were let out, and did not run when they were observed after that."""

    def observe(self, job_ref: ObjectRef, job: Body) -> None:
        """Record a job that names a controller of a kind that makes such jobs, and that controller."""
        uid, maker = job["metadata"]["uid"], _maker(job)
        if job_ref not in self._jobs and maker is not None and maker.uid != uid:
            self._jobs[job_ref] = _MadeJob(uid, str(job["metadata"].get("resourceVersion", "")))
            self._makers[uid] = maker
            self._made[maker.uid] = self._made.get(maker.uid, 0) + 1

    def forget_ended(self, job_ref: ObjectRef, observed: Observed) -> str:
        """Forget the job of that name if it is gone by what is observed now; return its uid, else empty.

        Who reads late gets the last message of a name only, and no tombstone of what was there before.
        """
        if (known := self._jobs.get(job_ref)) is None:
            return ""
        uid = known.uid
        exists = observed.body is not None and not observed.deleted
        if observed.uid == uid if exists else not observed.ends(uid, known.version):
            return ""
        del self._jobs[job_ref]
        maker = self._makers.pop(uid).uid
        self._came_to_rest.discard(uid)
        self._made[maker] -= 1
        if not self._made[maker]:
            del self._made[maker]
            if maker in self._ended:
                self._ended.discard(maker)
                self._queues.pop(maker, None)
        return uid

    def move(self, before: ObjectRef, after: ObjectRef, uid: str) -> None:
        """Record that the job of that uid is told under another name from now on."""
        known = self._jobs.get(before)
        if known is not None and known.uid == uid:
            self._jobs[after] = self._jobs.pop(before)

    def manage(self, uid: str, queue: str) -> None:
        """Record that a job which may make others is managed. Its last known queue counts."""
        self._ended.discard(uid)
        self._queues[uid] = queue or self._queues.get(uid, "")

    def end(self, uid: str) -> None:
        """Record that a job is gone or not managed any more. What it made may be let out still."""
        if uid in self._made:
            self._ended.add(uid)
        else:
            self._queues.pop(uid, None)

    def left(self, job: Body) -> str:
        """Return the uid of the managed controller that a job was let out of; empty if it was not."""
        maker = self._makers.get(job["metadata"]["uid"])
        if maker is None or maker == _maker(job):
            return ""
        for _ in range(ABOVE_MAX):
            if maker is None or maker.uid in self._queues:
                break
            maker = self._makers.get(maker.uid)
        return maker.uid if maker is not None and maker.uid in self._queues else ""

    def queue_left(self, job: Body) -> str:
        """Return the queue of the managed controller that a job was let out of; empty if it was not."""
        return self._queues.get(self.left(job), "")

    def uses_what_it_left(self, uid: str, *, runs: bool) -> bool:
        """Whether a job that left its owner still runs since then, on the quota of that owner."""
        if not runs:
            self._came_to_rest.add(uid)
        return uid not in self._came_to_rest


def _maker(job: Body) -> _Maker | None:
    for owner in job["metadata"].get("ownerReferences") or []:
        if owner.get("controller"):
            group = str(owner.get("apiVersion") or "").rpartition("/")[0]
            of = (str(owner.get(field) or "") for field in ("kind", "name", "uid"))
            return _Maker(group, *of)
    return None
