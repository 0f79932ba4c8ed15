"""Everything an operator may set for the dispatcher, with its default."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shared.settings.base import ServiceSettings
from shared.settings.configuration import MultiKueue


class DispatcherSettings(ServiceSettings):
    """Read once, at start, from `SLUICE_…` environment variables.

    Where a variable is not set, `multiKueue` of Kueue's Configuration may set origin, dispatcher, step size,
    time-out, and whether orphans are collected.
    """

    multikueue_origin: str = "multikueue"
    """Value of the label that marks the copies of this hub; hubs that share spokes must differ in it.
    Change it only while no workload runs on a spoke: a copy with the old value is never touched again."""

    dispatcher: str = "best-fit"
    """`best-fit`, `all-at-once`, `incremental` (or Kueue's names of these). Any other name: a program of
    that name nominates, by writing `status.nominatedClusterNames` of the Workload."""

    incremental_step_size: Annotated[int, Field(ge=1)] = 3
    """`incremental`: how many more spokes are nominated each round."""

    incremental_round_seconds: Annotated[float, Field(gt=0)] = 300.0
    """`incremental`: length of a round."""

    fallback_seconds: Annotated[float, Field(gt=0)] = 10.0
    """`best-fit`: how long a copy waits for quota before it moves to a spoke with free quota."""

    silent_seconds: Annotated[float, Field(gt=0)] = 30.0
    """A spoke without a heartbeat for so long gets no new offers: three heartbeats."""

    worker_lost_timeout_seconds: Annotated[float, Field(gt=0)] = 900.0
    """A spoke without a heartbeat for so long is lost."""

    redispatch: Literal["afterConfirmation", "afterLease"] = "afterConfirmation"
    """When a workload of a lost spoke may run elsewhere: once the spoke confirmed that its copy is gone
    (or an operator declared it lost), or once its patcher must have stopped the copy by itself."""

    stop_seconds: Annotated[float, Field(ge=0)] = 120.0
    """`afterLease`: how long stopping a copy may take."""

    patcher_down_seconds: Annotated[float, Field(ge=0)] = 180.0
    """`afterLease`: how long a spoke's patcher may be down; it stops copies that much earlier."""

    no_cluster_retry_seconds: Annotated[float, Field(gt=0)] = 60.0
    """A workload for which no spoke is usable queues again after this long."""

    not_seen_seconds: Annotated[float, Field(gt=0)] = 1.0
    """A job that was admitted but not observed yet is looked up again after this long."""

    orphan_seconds: Annotated[float, Field(gt=0)] = 30.0
    """A copy that is still observed this long after its spoke reported it as gone is withdrawn again."""

    collect_orphans: bool = True
    """Whether copies with this origin but without an order are deleted when their workload is gone."""

    spokes_seconds: Annotated[float, Field(gt=0)] = 5.0
    """How often the status of the spokes is computed."""

    forget_seconds: Annotated[float, Field(gt=0)] = 600.0
    """How long a withdrawn order stays in the view after its copy is gone."""

    tidy_seconds: Annotated[float, Field(gt=0)] = 60.0
    """How often withdrawn orders are removed from the view."""

    @model_validator(mode="after")
    def _leases_outlast_silence(self) -> Self:
        lease = self.lease_seconds
        if lease is not None and lease < self.silent_seconds:
            raise ValueError(
                f"SLUICE_WORKER_LOST_TIMEOUT_SECONDS: {self.worker_lost_timeout_seconds:g} leaves leases of "
                f"{lease:g} s when SLUICE_STOP_SECONDS and SLUICE_PATCHER_DOWN_SECONDS are taken off; with "
                f"afterLease they must last for SLUICE_SILENT_SECONDS ({self.silent_seconds:g}) at least"
            )
        return self

    def with_configuration(self, section: MultiKueue) -> "DispatcherSettings":
        """These settings, with the values of the section where no variable is set.

        Raises ValueError if the two together are invalid.
        """
        rounds, timeout = section.incremental_dispatcher_config, section.worker_lost_timeout
        configured = {
            "multikueue_origin": section.origin,
            "dispatcher": section.dispatcher_name,
            "incremental_step_size": None if rounds is None else rounds.step_size,
            # However short the time-out, one missed heartbeat does not make a spoke lost.
            "worker_lost_timeout_seconds": (
                None if timeout is None else max(timeout, self.silent_seconds)
            ),
            "collect_orphans": None if section.gc_interval is None else section.gc_interval > 0,
        }
        own = self.model_fields_set
        added = {k: v for k, v in configured.items() if v is not None and k not in own}
        return type(self)(**(self.model_dump() | added))

    @property
    def lease_seconds(self) -> float | None:
        """After how long without the hub's bus a patcher stops copies; None: never."""
        if self.redispatch == "afterConfirmation":
            return None
        return self.worker_lost_timeout_seconds - self.stop_seconds - self.patcher_down_seconds
