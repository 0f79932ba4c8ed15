"""What is watched in a cluster, and in which order it is listed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import CONFIGURATION_KINDS, Kind
from shared.integrations import INTEGRATIONS

__all__ = ["KNOWN", "Scope", "name_of", "stages"]

MACHINE_SECRETS: Final = "build.appstudio.redhat.com/multi-platform-secret=true"
"""The Secrets that name machines and keys (`research/tekton.md` 3.3): no others are looked at."""

HOST_CONFIG: Final = "build.appstudio.redhat.com/multi-platform-config"
"""The ConfigMaps that say which machines there are; the value does not matter."""

_LABELS: Final = {kinds.SECRET: MACHINE_SECRETS, kinds.CONFIG_MAP: HOST_CONFIG}
"""Kinds of which most objects are nobody's business here."""

_JOBS: Final = tuple(integration.kind for integration in INTEGRATIONS)
_FIRST: Final = (kinds.INTEGRATION, *CONFIGURATION_KINDS)
"""Integrations come first: they say what else there is to watch."""

_REST: Final = (kinds.CONFIG_MAP, *_JOBS, kinds.TASK_RUN, kinds.SECRET, kinds.NODE)
_STAGES: Final = (_FIRST, (kinds.WORKLOAD,), _REST)
"""What decides about work comes before the work, and what was decided before who asks for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One kind in one namespace, or wherever it is: what one list shows."""

    kind: Kind
    namespace: str | None = None
    labels: str | None = None

    def __str__(self) -> str:
        where = "" if self.namespace is None else f" in {self.namespace}"
        return f"{name_of(self.kind)}{where}"


def name_of(kind: Kind) -> str:
    """``<plural>.<group>``, as kubectl takes it; core kinds are their plural alone."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


KNOWN: Final = {name_of(kind): kind for stage in _STAGES for kind in stage}
"""All that can be watched."""


def stages(names: Sequence[str], namespaces: Sequence[str]) -> list[list[Scope]]:
    """Scopes to list together, stage after stage; stages without any are left out."""
    wanted = frozenset(names)
    found = [
        [
            Scope(kind=kind, namespace=namespace, labels=_LABELS.get(kind))
            for kind in stage
            if name_of(kind) in wanted
            for namespace in (namespaces if kind.namespaced and namespaces else (None,))
        ]
        for stage in _STAGES
    ]
    return [stage for stage in found if stage]
