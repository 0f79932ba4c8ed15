"""Holds back the end of a job whose pods still run: its quota is free when they are gone.

1. A job is deleted while something of it runs. Its tombstone is held back.
2. Pods of its namespace are listed until none of them is the job's, then the tombstone is published.
3. A new job of that name is held back, too: a subject has one last message. If the same controller made
   both, nothing holds the new one, which runs beside the pods of the first. Then the first is told under a
   name of its own (`Departure`), and the new one's message takes the place of the tombstone.

A pod is the job's if its controller is, or is a child of the job: a TaskRun of a PipelineRun, a Job of a
JobSet. An object that the job's kind does not make is no child, whatever controller its tenant writes into
it: it would hide the next job of that name for as long as it runs. Where the garbage collector has taken the
controller away (`--cascade=orphan`), the Job controller's label says it. A pod that was the job's once
remains so, whatever its tenant writes into it: what is written can only keep the quota longer.

Of a kind whose users write the status (`statusSubresource: false`), or whose status says nothing of pods
that run on (`podsOutliveStatus: true`), an end is held back in the same way while the job is still there: it
is published when none of its pods runs. Where users write it, that a job runs which waits is doubted, too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from services.watcher.published import ObjectName
from services.watcher.running_pods import RunningPods, running_pods
from services.watcher.scopes import Scope
from shared.contracts.kube.bodies import Body, OwnerReference, status_of
from shared.contracts.kube.kinds import DEPARTURE, PIPELINE_RUN, POD, TASK_RUN, Kind
from shared.contracts.messages.observed import Observed
from shared.integrations import Integration, Integrations, controller_uid
from shared.kube.port import Kube, KubeError, RefusedError

log = structlog.get_logger(__name__)

POLL_SECONDS: Final = 2.0
POLL_SECONDS_MAX: Final = 30.0
"""Pause between two lists of a namespace's pods: it doubles while nothing ends."""

_CHAIN_MAX: Final = 4
"""Controllers between a pod and its job: more than any kind has."""

_ORPHAN: Final = "orphan"
"""Finalizer of a job whose pods shall outlive it: the garbage collector takes their references away."""


@dataclass(slots=True, kw_only=True)
class _Departure:
    """A job that ends when its pods are gone."""

    scope: Scope
    namespace: str
    tombstone: Observed | None = None
    """What to publish then. None: the job is still there, and its pods are about to lose it."""

    later: Body | None = None
    """The next object of that name."""

    ended: Body | None = None
    """The state of a job that is still there, by which nothing of it runs."""

    pods: set[str] = field(default_factory=set)
    """Uids of pods that were seen to be its own."""


@dataclass(slots=True)
class _NextPoll:
    """When the pods of a namespace are listed next."""

    at: float = 0.0
    """Loop time."""

    pause: float = POLL_SECONDS


class Departures:
    """The jobs of one term that end when their pods are gone."""

    def __init__(
        self,
        *,
        kube: Kube,
        integrations: Integrations,
        release: Callable[[Scope, Observed, Body | None], None],
        show: Callable[[Scope, Body], None],
        tell: Callable[[Scope, Observed], Awaitable[None]],
        enabled: bool = True,
    ) -> None:
        """`release` publishes a tombstone, and the next object of that name if there is one.

        `show` publishes the state of an object that was held back.
        `tell` publishes a message, and returns when it is on the log.
        """
        self._kube = kube
        self._integrations = integrations
        self._release = release
        self._show = show
        self._tell = tell
        self._enabled = enabled
        self._departing: dict[str, _Departure] = {}
        """By uid of the job."""

        self._by_name: dict[tuple[Kind, ObjectName], str] = {}
        """Name to the uid of the job whose tombstone is held back."""

        self._controllers: dict[str, str] = {}
        """Uid of a TaskRun or job to the uid of its controller."""

        self._running: dict[str, set[str]] = {}
        """Uid of a controller to those of the jobs that it made of which something may run."""

        self._ended_children: dict[str, str] = {}
        """Uid of one that was deleted while it ran, to its namespace: its pods may run still."""

        self._started: dict[str, bool] = {}
        """Uid of each job that was let go, of a kind whose ends are doubted, to whether its status said that
        something of it runs."""

        self._pod_names: dict[str, frozenset[str]] = {}
        """Uid of each of these jobs to the names of pods that its status has told."""

        self._polls: dict[str, _NextPoll] = {}
        """By namespace in which something departs."""

        self._looked: dict[str, float] = {}
        """By namespace whose pods were listed a moment ago: loop time."""

        self._wake = asyncio.Event()
        self._allowed = True

    def observe(self, scope: Scope, obj: Body) -> bool:
        """Note an object that exists. True: it is held back, because another of its name departs."""
        if not self._concerns(scope.kind):
            return False
        metadata = obj["metadata"]
        uid = metadata["uid"]
        name = ObjectName(metadata.get("namespace"), metadata["name"])
        if controller := self._maker_of(scope.kind, obj):
            # Its user may write another one later: its pods are those of the job that made it.
            self._controllers.setdefault(uid, controller)
        if uid in self._controllers:
            self._note(uid, runs=self._may_run(scope.kind, obj))
        before = self._by_name.get((scope.kind, name))
        if before is not None and before != uid:
            self._hold(self._departing[before], obj)
            return True
        if self._doubts(scope.kind, obj):
            self._hold_end(scope, obj)
            return True
        loses_pods = "deletionTimestamp" in metadata and _ORPHAN in (
            metadata.get("finalizers") or ()
        )
        departure = self._departing.get(uid)
        if departure is not None and departure.ended is not None:  # It runs again.
            departure.ended = None
            if not loses_pods:
                del self._departing[uid]
        if loses_pods and uid not in self._departing and self._may_run(scope.kind, obj):
            self._departing[uid] = _Departure(scope=scope, namespace=name.namespace or "")
            self._look_soon(name.namespace or "")
        return False

    def restore(self, kind: Kind, state: Observed) -> None:
        """Note what is on the log of an object that something controls, before anything is listed.

        An earlier watcher knew to which job the pods of a TaskRun belong. The TaskRun may be gone by now,
        and its pods run. A departure may be noted later, too: what a deposed watcher told arrives late.
        """
        if kind == DEPARTURE:
            self._restore_departure(state)
            return
        if state.body is not None and not state.deleted and self.remembers(kind):
            self._doubts(kind, state.body, on_log=True)
        controller = "" if state.body is None else self._maker_of(kind, state.body)
        if not controller or state.namespace is None or not self._concerns(kind):
            return
        may_run = state.body is not None and self._may_run(kind, state.body)
        if not state.deleted:
            self._controllers[state.uid] = controller
            self._note(state.uid, runs=may_run)
        elif may_run:
            self._controllers[state.uid] = controller
            self._ended_children[state.uid] = state.namespace
            self._look_soon(state.namespace)

    def remembers(self, kind: Kind) -> bool:
        """Whether each object of the kind that is on the log is to be restored, controlled or not."""
        return self._concerns(kind) and self._doubted(kind) is not None

    def _restore_departure(self, state: Observed) -> None:
        if state.deleted or state.body is None or state.namespace is None:
            return
        if controller := controller_uid(state.body):
            self._controllers.setdefault(state.uid, controller)
            self._note(state.uid, runs=True)
        departure = self._departing.setdefault(
            state.uid, _Departure(scope=Scope(kind=DEPARTURE), namespace=state.namespace)
        )
        self._give_name_back(departure, state)
        self._look_soon(state.namespace)

    def forget_later(self, scope: Scope, tombstone: Observed) -> bool:
        """Note the end of an object that was held back itself; False: it was not."""
        name = ObjectName(tombstone.namespace, tombstone.name)
        departure = self._departing.get(self._by_name.get((scope.kind, name), ""))
        if departure is None or departure.later is None:
            return False
        if departure.later["metadata"]["uid"] != tombstone.uid:
            return False
        departure.later = None
        if tombstone.uid in self._controllers and tombstone.namespace is not None:
            self._ended_children[tombstone.uid] = tombstone.namespace
        return True

    def depart(self, scope: Scope, tombstone: Observed, later: Body | None = None) -> bool:
        """Hold a tombstone back while pods of the job may run; False: publish it now.

        A tombstone without the last state is held back until the pods were listed.
        """
        kind, uid = scope.kind, tombstone.uid
        if not self._concerns(kind) or tombstone.namespace is None:
            return False
        key = (kind, ObjectName(tombstone.namespace, tombstone.name))
        if (before := self._by_name.get(key)) is not None:
            self._hold(self._departing[before], later)
            return True
        if (known := self._departing.get(uid)) is not None and known.scope.kind == DEPARTURE:
            return False  # It is counted under the name of its own.
        body = tombstone.body
        may_run = uid in self._running or uid in self._started
        if body is not None and not may_run and not self._may_run(kind, body):
            self._departing.pop(uid, None)
            self._forget(uid)
            return False
        if kind == TASK_RUN:
            self._ended_children[uid] = tombstone.namespace
            self._look_soon(tombstone.namespace)
            return False
        departure = self._departing.setdefault(
            uid, _Departure(scope=scope, namespace=tombstone.namespace)
        )
        departure.tombstone, departure.later, departure.ended = tombstone, later, None
        self._by_name[key] = uid
        self._look_soon(tombstone.namespace)
        return True

    def is_succeeded(self, kind: Kind, tombstone: Observed, later: Body) -> bool:
        """Whether the controller of a job that is gone has made the next one of that name, too."""
        if kind == TASK_RUN or not self._concerns(kind):
            return False
        body = tombstone.body
        known = self._controllers.get(tombstone.uid, "")
        maker = known if body is None else self._maker_of(kind, body)
        return bool(maker) and self._maker_of(kind, later) == maker

    async def run(self) -> None:
        """Look for the pods of what departs, until cancelled."""
        while True:
            self._wake.clear()
            await self._set_apart()
            pause = await self._poll()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()

    def _hold(self, departure: _Departure, later: Body | None) -> None:
        """Hold the next object of a name back, unless it runs beside what departs."""
        departure.later = later
        if self._apart(departure) is not None:
            self._wake.set()

    def _look_soon(self, namespace: str) -> None:
        """Look soon, but no sooner than a pause after the last look: one list serves all that end in it."""
        self._polls[namespace] = _NextPoll(at=self._looked.get(namespace, 0.0) + POLL_SECONDS)
        self._wake.set()

    async def _set_apart(self) -> None:
        """Publish a departing job as a `Departure` once its controller has made the next one of its name."""
        for departure in list(self._departing.values()):
            if (apart := self._apart(departure)) is not None:
                await self._tell(Scope(kind=DEPARTURE), apart)
                self._give_name_back(departure, apart)

    def _apart(self, departure: _Departure) -> Observed | None:
        """What is to be told of a job under a name of its own; None if the next one of its name waits."""
        tombstone, later = departure.tombstone, departure.later
        if tombstone is None or later is None:
            return None
        return tombstone.apart() if later["metadata"]["uid"] in self._controllers else None

    def _give_name_back(self, departure: _Departure, apart: Observed) -> None:
        """Release the name of a job, if it holds it: the log tells of it under a name of its own."""
        scope, tombstone, later = departure.scope, departure.tombstone, departure.later
        departure.scope, departure.tombstone = Scope(kind=DEPARTURE), apart.ended()
        departure.later = None
        if tombstone is not None:
            del self._by_name[scope.kind, ObjectName(tombstone.namespace, tombstone.name)]
            self._release(scope, tombstone, later)

    def _concerns(self, kind: Kind) -> bool:
        if not self._enabled or not self._allowed:
            return False
        if kind == TASK_RUN:
            return True
        integration = self._integrations.find(group=kind.group, plural=kind.plural)
        return (
            integration is not None and integration.gate is None
        )  # One with a gate is a pod itself.

    def _maker_of(self, kind: Kind, obj: Body) -> str:
        """Uid of the controller of an object, if controllers of that kind make such objects; else empty."""
        if kind != TASK_RUN:
            makes = self._integrations.has_waiting_controller(obj, kind)
            return controller_uid(obj) if makes else ""
        owners = obj["metadata"].get("ownerReferences") or []
        found = [one["uid"] for one in owners if one.get("controller") and _is_run(one)]
        return found[0] if found else ""

    def _may_run(self, kind: Kind, job: Body) -> bool:
        if kind == TASK_RUN:
            status = status_of(job)
            return bool(status.get("startTime")) and not status.get("completionTime")
        integration = self._integrations.find(group=kind.group, plural=kind.plural)
        if integration is None:
            return False
        if integration.active(job) or integration.finish(job) is not None:
            return integration.active(job)
        # Its controller may have made pods that the status does not count yet. A job has none only if nobody
        # ever let it go: to do so changes its spec.
        is_new = int(job["metadata"].get("generation") or 0) <= 1
        return not (is_new and integration.held(job))

    def _doubted(self, kind: Kind) -> Integration | None:
        """Return the integration of a kind of which no end is believed while pods run; else None."""
        found = self._integrations.find(group=kind.group, plural=kind.plural)
        doubted = found is not None and (found.users_write_status or found.pods_outlive_status)
        return found if doubted else None

    def _doubts(self, kind: Kind, job: Body, *, on_log: bool = False) -> bool:
        """Note how far a job is; return whether it says that nothing of it runs any more.

        What its own controller writes into a job that may run on, is no end: that would hide its growth.
        That a job runs which waits is doubted where its user may write that. `on_log`: it was believed.
        """
        if (integration := self._doubted(kind)) is None:
            return False
        uid, runs = job["metadata"]["uid"], _has_started(integration, job)
        ran = self._started.get(uid)
        claims = ran is None and runs and integration.held(job) and not on_log
        if claims and integration.users_write_status:
            return True
        if ran is not None and (
            runs is None or (not runs and ran and integration.users_write_status)
        ):
            return True
        if runs is not None:
            self._started[uid] = runs
            if names := integration.pod_names(job):
                self._pod_names[uid] = names
        return False

    def _hold_end(self, scope: Scope, job: Body) -> None:
        """Hold back the state of a job that says that nothing of it runs, until none of its pods does."""
        metadata = job["metadata"]
        uid, namespace = metadata["uid"], metadata.get("namespace") or ""
        departure = self._departing.setdefault(uid, _Departure(scope=scope, namespace=namespace))
        if departure.ended is None:
            self._look_soon(namespace)
        departure.ended = job

    def _believe(self, departure: _Departure, body: Body, *, runs: bool) -> None:
        """Publish a state that was held back. Of a job that never ran, its status is left out.

        `runs`: pods of it do.
        """
        uid = body["metadata"]["uid"]
        del self._departing[uid]
        has_begun = self._started.pop(uid, None) is not None or runs or not self._allowed
        self._pod_names.pop(uid, None)
        if runs:
            self._started[uid] = True
        self._show(departure.scope, body if has_begun else {**body, "status": {}})

    async def _poll(self) -> float | None:
        """List the pods of each namespace whose turn it is; return the seconds to the next one's turn."""
        loop = asyncio.get_running_loop()
        for namespace in self._places():
            poll = self._polls.setdefault(namespace, _NextPoll())
            if poll.at > loop.time():
                continue
            has_ended = await self._look(namespace)
            self._looked[namespace] = loop.time()
            poll.pause = POLL_SECONDS if has_ended else poll.pause * 2
            poll.at = loop.time() + min(poll.pause, POLL_SECONDS_MAX)
        self._polls = {
            place: self._polls[place] for place in self._places() if place in self._polls
        }
        recent = loop.time() - POLL_SECONDS
        self._looked = {place: at for place, at in self._looked.items() if at > recent}
        turns = [poll.at for poll in self._polls.values()]
        return max(0.0, min(turns) - loop.time()) if turns else None

    def _places(self) -> list[str]:
        """The namespaces in which something departs."""
        spaces = {departure.namespace for departure in self._departing.values()}
        return sorted(spaces | set(self._ended_children.values()))

    async def _look(self, namespace: str) -> bool:
        """List the pods of a namespace. Returns whether something ended there."""
        try:
            pods = (await self._kube.list(POD, namespace=namespace)).items
        except RefusedError as error:
            log.warning("pods cannot be listed: quota is given back with the job", error=str(error))
            self._allowed, pods = False, []
        except KubeError as error:
            log.info("cannot list the pods now", namespace=namespace, error=str(error))
            return False
        return self._settle(namespace, running_pods(pods))

    def _settle(self, namespace: str, pods: RunningPods) -> bool:
        """Release what has no running pod in this namespace; return whether anything was released."""
        running = pods.controllers
        for pod, controller in running.items():
            for above in self._chain(controller):
                if (departure := self._departing.get(above)) is not None:
                    departure.pods.add(pod)
        for uid, departure in self._departing.items():
            if departure.namespace == namespace and (names := self._pod_names.get(uid)):
                departure.pods.update(pods.named(names))
        # What a controller made ends before the controller: without that it would seem to be nobody's.
        before = len(self._departing)
        lowest_first = sorted(self._departing.items(), key=self._height)
        for uid, departure in lowest_first:
            tombstone, ended = departure.tombstone, departure.ended
            if ended is not None and departure.namespace == namespace:
                runs = not running.keys().isdisjoint(departure.pods)
                if not runs or uid not in self._started:
                    self._believe(departure, ended, runs=runs)
                continue
            if tombstone is None or tombstone.namespace != namespace:
                continue
            if running.keys().isdisjoint(departure.pods):
                del self._departing[uid]
                name = ObjectName(namespace, tombstone.name)
                self._by_name.pop((departure.scope.kind, name), None)
                self._release(departure.scope, tombstone, departure.later)
                self._forget(uid)
        in_use = set(running.values())
        for uid, space in list(self._ended_children.items()):
            if space == namespace and uid not in in_use:
                del self._ended_children[uid]
                self._forget(uid)
        return len(self._departing) < before

    def _note(self, uid: str, *, runs: bool) -> None:
        """Note whether something of a job may run that a controller made."""
        controller = self._controllers[uid]
        if runs:
            self._running.setdefault(controller, set()).add(uid)
        elif (known := self._running.get(controller)) is not None:
            known.discard(uid)
            if not known:
                del self._running[controller]

    def _forget(self, uid: str) -> None:
        self._started.pop(uid, None)
        self._pod_names.pop(uid, None)
        if uid in self._controllers:
            self._note(uid, runs=False)
            del self._controllers[uid]

    def _height(self, departing: tuple[str, _Departure]) -> int:
        """How many controllers are above a job, less than nothing: those below come first."""
        return -sum(1 for _ in self._chain(departing[0]))

    def _chain(self, uid: str) -> Iterator[str]:
        """A controller and those above it."""
        for _ in range(_CHAIN_MAX):
            yield uid
            if (above := self._controllers.get(uid)) is None:
                return
            uid = above


def _is_run(owner: OwnerReference) -> bool:
    group = owner["apiVersion"].partition("/")[0]
    return (group, owner["kind"]) == (PIPELINE_RUN.group, PIPELINE_RUN.kind)


def _has_started(integration: Integration, job: Body) -> bool | None:
    """Whether something of a job that was let go runs by its status; None if it waits or has ended."""
    if integration.finish(job) is not None:
        return None
    if integration.active(job):
        return True
    return None if integration.held(job) else False
