"""Starts and stops all controllers of a cluster together."""

from collections.abc import Callable
from random import Random

from services.simulator.behaviour.clock import Clock
from services.simulator.behaviour.controller import Controller
from services.simulator.behaviour.namespaces import NamespaceController
from services.simulator.behaviour.nodes.pods import PodController
from services.simulator.behaviour.nodes.volumes import ClaimController
from services.simulator.behaviour.tekton.admission import TektonAdmission
from services.simulator.behaviour.tekton.pipelineruns import PipelineRunController
from services.simulator.behaviour.tekton.taskruns import TaskRunController
from services.simulator.behaviour.workloads.jobs import JobController
from services.simulator.behaviour.workloads.jobsets import JobSetController
from services.simulator.behaviour.workloads.statefulsets import StatefulSetController
from services.simulator.cluster.api import Api


class ControllerManager:
    """All controllers of one cluster. `start` needs a running event loop, real or virtual."""

    def __init__(self, api: Api, *, random: Random, speed: float = 1.0) -> None:
        """`speed` 60 makes a simulated minute last a second of the loop's time."""
        self._api, self._clock = api, Clock(speed)
        self.tekton_admission = TektonAdmission()
        api.admission.plugins.append(self.tekton_admission)
        kinds = (
            NamespaceController,
            PodController,
            JobController,
            TaskRunController,
            PipelineRunController,
            StatefulSetController,
            ClaimController,
            JobSetController,
        )
        # Each controller has its own random numbers, so that one does not shift those of another.
        self._controllers: list[Controller] = [
            kind(api, self._clock, Random(random.getrandbits(64))) for kind in kinds
        ]

    def add(self, controller: Callable[[Api, Clock, Random], Controller], random: Random) -> None:
        """Add the controller of a kind that few clusters serve, before `start`."""
        self._controllers.append(controller(self._api, self._clock, random))

    def start(self) -> None:
        """Let the controllers run as tasks of the running loop."""
        for controller in self._controllers:
            controller.start()

    async def stop(self) -> None:
        """Stop all controllers."""
        for controller in self._controllers:
            await controller.stop()
