"""The worst moment for a refusal: another release of the same job is on its way to the cluster.

1. A patcher has written that a workload is admitted, and sends the release of its job. It is on its way.
2. The job is changed. Another patcher sends the release, too, and the cluster refuses it: for a moment, as
   somebody's webhook does whose own configuration is wrong. That patcher says that it was refused for good.
3. What that frees is given away. The first release arrives.
"""

import asyncio
from random import Random
from typing import Final

from services.simulator.cluster.admission import AdmissionRequest
from services.simulator.cluster.errors import bad_request
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.scenarios.load import PRIORITIES
from services.simulator.scenarios.swarm.load import REFUSED
from services.simulator.scenarios.swarm.moments.admissions import follow_admissions, may_act
from services.simulator.scenarios.system import CLUSTER, System
from shared.contracts.kube import kinds, names
from shared.kube.port import KubeError

ON_ITS_WAY_SECONDS: Final = (1.0, 1.8)
"""How long releases are on their way: while nobody asks whether a decision is the last one."""

REFUSED_SHARE: Final = 0.95
"""Of that time: until shortly before the release arrives."""


class LateRefusals:
    """Follows the Workloads of a world, and acts at such moments. An admission plugin of the cluster, too."""

    name = "zz-late-refuser"

    def __init__(self, system: System, patchers: int) -> None:
        self._system = system
        self._world = system.world
        self._patchers = [f"patcher-{number + 1}" for number in range(patchers)]
        self._random = Random(f"refusals/{system.world.seed}")
        self._until = 0.0
        self._refused = ("", "", 0.0)
        """Namespace and name of the job that is not to start, and until when."""

        self._acting: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to follow the Workloads."""
        follow_admissions(
            self._system,
            self._on_admitted,
            is_free=lambda: may_act(self._world, self._until),
        )
        self._system.api.admission.plugins.append(self)

    async def mutate(self, request: AdmissionRequest) -> Obj | None:
        """Change nothing."""
        return request.obj

    async def validate(self, request: AdmissionRequest) -> None:
        """Refuse to start the job of the moment."""
        namespace, name, until = self._refused
        obj, old = request.obj, request.old
        if obj is None or old is None or request.subresource or self._world.loop.time() > until:
            return
        if request.kind.kind != kinds.JOB.kind or (request.namespace, request.name) != (
            namespace,
            name,
        ):
            return
        if old["spec"].get("suspend") and not obj["spec"].get("suspend"):
            raise bad_request("this job is not to start")

    def _on_admitted(self, workload: Obj) -> None:
        metadata = workload["metadata"]
        owners = [one for one in metadata.get("ownerReferences") or [] if one["kind"] == "Job"]
        if owners and self._random.random() < 1 / 2:
            self._act(metadata["namespace"], owners[0]["name"], self._world.loop.time())

    def _act(self, namespace: str, name: str, now: float) -> None:
        seconds = self._random.uniform(*ON_ITS_WAY_SECONDS)
        self._until = now + seconds
        self._refused = (namespace, name, now + seconds * REFUSED_SHARE)
        for patcher in self._random.sample(self._patchers, len(self._patchers) - 1):
            self._world.links.hold(patcher, CLUSTER, ways=("request",), seconds=seconds)
        task = asyncio.get_running_loop().create_task(self._change(namespace, name))
        self._acting.add(task)
        task.add_done_callback(self._acting.discard)

    async def _change(self, namespace: str, name: str) -> None:
        """Give the job another priority, so that patchers hear of it, and let it be deleted in the end."""
        urgency = self._random.choice(tuple(PRIORITIES))
        patch = {"metadata": {"labels": {names.PRIORITY_CLASS_LABEL: urgency, REFUSED: "true"}}}
        try:
            await self._system.kube.patch(kinds.JOB, namespace, name, patch)
        except KubeError:
            return
