"""What the patcher does when a message arrives."""

from services.patcher.cluster.cache import Mirror
from services.patcher.machines.secrets import Machines
from services.patcher.multikueue.multikueue import Elsewhere
from services.patcher.workloads.reconciler import Reconciler
from shared.bus.port import Bus, Entry
from shared.contracts import subjects
from shared.contracts.messages.effects import Dispatch, HostState
from shared.contracts.messages.spokes import CheckStanding, Homecoming, SpokeState

__all__ = ["Handlers"]


class Handlers:
    """The service's side of the wire: four views in, Kubernetes writes and outcomes out."""

    def __init__(
        self,
        *,
        cluster: str,
        mirror: Mirror,
        reconciler: Reconciler,
        machines: Machines,
        elsewhere: Elsewhere,
        others_decide: bool = False,
    ) -> None:
        """`others_decide`: a Kueue of its own admits what waits in this cluster."""
        self._others_decide = others_decide
        self._cluster = cluster
        self._mirror = mirror
        self._reconciler = reconciler
        self._machines = machines
        self._elsewhere = elsewhere

    def register(self, bus: Bus) -> None:
        """Subscribe each handler; one workload is handled by one of them at a time."""
        token = subjects.encode(self._cluster)
        own = (
            ("WORKLOADS", "workload", self.on_workload, object_key),
            ("ADMISSIONS", "admission", self.on_admission, object_key),
        )
        for stream, what, handler, key in (
            *(() if self._others_decide else own),
            ("HOSTS", "host", self.on_host, None),
            ("DISPATCHES", "dispatch", self.on_dispatch, object_key),
            ("DISPATCHES", "home", self.on_home, None),
            ("SPOKES", "spoke", self.on_spoke, None),
            ("SPOKES", "standing", self.on_standing, None),
        ):
            filters = (f"{subjects.ROOT}.{what}.{token}.>",)
            bus.work(stream, f"patcher-{token}-{what}", handler, filters=filters, key=key)

    async def on_workload(self, entry: Entry) -> None:
        """Create and keep the Workload object; hold back what slipped past the webhook."""
        state = self._mirror.take_workload(entry)
        await self._reconciler.reconcile(state.namespace, state.name)

    async def on_admission(self, entry: Entry) -> None:
        """Write the decision into the Workload's status, then release or stop the job."""
        admission = self._mirror.take_admission(entry)
        await self._reconciler.reconcile(admission.namespace, admission.name)

    async def on_host(self, entry: Entry) -> None:
        """Create or delete the secret of a TaskRun's machine."""
        await self._machines.apply(entry.read(HostState))

    async def on_dispatch(self, entry: Entry) -> None:
        """Create or delete the copy of a job of the hub."""
        dispatch = entry.read(Dispatch)
        await self._elsewhere.apply(dispatch)
        if dispatch.state == "chosen" and not self._others_decide:
            # It may have quota already: nothing else would start it now.
            await self._reconciler.reconcile(dispatch.namespace, dispatch.name)

    async def on_home(self, entry: Entry) -> None:
        """Write at the hub what became of what it sent away."""
        await self._elsewhere.bring_home(entry.read(Homecoming))

    async def on_spoke(self, entry: Entry) -> None:
        """Write at the hub how a spoke stands."""
        await self._elsewhere.say_of_spoke(entry.read(SpokeState))

    async def on_standing(self, entry: Entry) -> None:
        """Write at the hub whether a check leads anywhere."""
        await self._elsewhere.say_of_check(entry.read(CheckStanding))


def object_key(entry: Entry) -> str:
    """Workload, admission and order of one name are one object to the cluster."""
    return ".".join(entry.subject.split(".")[2:])
