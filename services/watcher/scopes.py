"""What the watcher watches in a cluster, and in which order it lists the kinds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import CONFIGURATION_KINDS, Kind
from shared.contracts.kube.names import MANAGED_LABEL
from shared.contracts.multi_platform import CONFIG_LABEL
from shared.integrations import INTEGRATIONS, WHERE_SERVED

_LABELS: Final = {
    kinds.CONFIG_MAP: CONFIG_LABEL,
    kinds.PROVISIONING_REQUEST: f"{MANAGED_LABEL}=true",
}
"""Kinds that are watched by a label selector."""

_JOBS: Final = tuple(integration.kind for integration in INTEGRATIONS)
_FIRST: Final = (kinds.INTEGRATION, *CONFIGURATION_KINDS)
"""Integrations come first: they tell which other kinds to watch."""

_REST: Final = (
    kinds.CONFIG_MAP,
    *_JOBS,
    kinds.TASK_RUN,
    kinds.NODE,
    kinds.PROVISIONING_REQUEST,
    kinds.CLUSTER_PROFILE,
)
RETIRED: Final = (kinds.SECRET,)
"""Kinds that earlier versions watched: what they published of them gets tombstones. `shared/integrations`
refuses a document that would bring them back."""

_STAGES: Final = (_FIRST, (kinds.WORKLOAD,), _REST)
"""Configuration comes before jobs, and the Workloads of earlier decisions come before their jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One kind in one namespace or in all: the objects of one list request."""

    kind: Kind
    namespace: str | None = None
    """None: all namespaces."""

    labels: str | None = None
    """Label selector."""

    def __str__(self) -> str:
        where = "" if self.namespace is None else f" in {self.namespace}"
        return f"{resource_name(self.kind)}{where}"


def resource_name(kind: Kind) -> str:
    """``<plural>.<group>``, as kubectl takes it; only the plural for the core group."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


KNOWN: Final = {resource_name(kind): kind for stage in _STAGES for kind in stage}
"""Every kind that can be watched without an Integration."""

LOOKED_FOR: Final = WHERE_SERVED | {kinds.CLUSTER_PROFILE}
"""Kinds that are watched once the API server serves them, instead of being listed again and again."""


def stages(names: Sequence[str], namespaces: Sequence[str]) -> list[list[Scope]]:
    """The scopes of these kinds and namespaces, by stage. A stage is listed after the one before it."""
    wanted = frozenset(names)
    found = [
        [
            Scope(kind=kind, namespace=namespace, labels=_LABELS.get(kind))
            for kind in stage
            if resource_name(kind) in wanted
            for namespace in (namespaces if kind.namespaced and namespaces else (None,))
        ]
        for stage in _STAGES
    ]
    return [stage for stage in found if stage]
