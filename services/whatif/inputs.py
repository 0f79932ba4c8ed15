"""The observed kinds that a simulation begins with."""

from typing import Final

from services.quota.wire.inbound import CONFIGURATION_KINDS
from shared.contracts.kube import kinds

CLASSES: Final = (
    kinds.WORKLOAD_PRIORITY_CLASS,
    kinds.PRIORITY_CLASS,
    kinds.LIMIT_RANGE,
    kinds.RUNTIME_CLASS,
)
"""Besides the queues, the kinds that the requests and the priority of a new job depend on."""

MULTIKUEUE_KINDS: Final = (kinds.MULTIKUEUE_CONFIG, kinds.MULTIKUEUE_CLUSTER)
"""The kinds that say to which spokes a queue leads."""

OBSERVED_KINDS: Final = (*CONFIGURATION_KINDS, *CLASSES, *MULTIKUEUE_KINDS)
"""The observed kinds that are read."""
