"""What the patcher does when a message arrives."""

from services.patcher.machines import Machines
from services.patcher.mirror import Mirror
from services.patcher.reconcile import Reconciler
from services.patcher.spokes import Spokes
from shared.bus.port import Bus, Entry
from shared.contracts import subjects
from shared.contracts.effects import Dispatch, HostState

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
        spokes: Spokes,
    ) -> None:
        self._cluster = cluster
        self._mirror = mirror
        self._reconciler = reconciler
        self._machines = machines
        self._spokes = spokes

    def register(self, bus: Bus) -> None:
        """Subscribe each handler; one workload is handled by one of them at a time."""
        token = subjects.encode(self._cluster)
        for stream, what, handler, key in (
            ("WORKLOADS", "workload", self.on_workload, object_key),
            ("ADMISSIONS", "admission", self.on_admission, object_key),
            ("HOSTS", "host", self.on_host, None),
            ("DISPATCHES", "dispatch", self.on_dispatch, None),
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
        await self._machines.apply(HostState.decode(entry.data, entry.headers))

    async def on_dispatch(self, entry: Entry) -> None:
        """Create or delete the copy of a job of the hub."""
        await self._spokes.apply(Dispatch.decode(entry.data, entry.headers))


def object_key(entry: Entry) -> str:
    """Workload and admission of one name are one object to the cluster."""
    return ".".join(entry.subject.split(".")[2:])
