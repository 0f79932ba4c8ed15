"""From the record of a machine to the order that its provider gets."""

from services.provisioner.allocation.ledger import Machine
from services.provisioner.config.host_config import MachineSpec
from services.provisioner.providers.port import Order


def to_order(machine: Machine, spec: MachineSpec, *, platform: str, cluster: str) -> Order:
    """The order for `machine`. The provisioner's own tags override those of the configuration."""
    tags = {
        **dict(spec.extra_tags),
        "MultiPlatformManaged": "true",
        "multi-platform-instance": machine.tag,
        "Name": machine.name,
        "taskRunID": machine.task_run,
        "sluicegate-cluster": cluster,
    }
    return Order(
        name=machine.name,
        owner=cluster,
        platform=platform,
        tag=machine.tag,
        tags=tags,
        parameters=dict(spec.parameters),
    )
