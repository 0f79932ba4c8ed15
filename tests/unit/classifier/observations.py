"""Builders of observations that classifier tests share."""

from typing import Any

from shared.contracts.kube import kinds, names
from shared.contracts.kube.kinds import Kind
from shared.contracts.messages.observed import Observed
from shared.testing.builders import observed_object


def seen(kind: Kind, name: str, namespace: str | None = None, **obj: Any) -> Observed:
    metadata = {"name": name, "uid": f"{kind.plural}-{name}", **obj.pop("metadata", {})}
    if namespace is not None:
        metadata["namespace"] = namespace
    return observed_object(kind, {"kind": kind.kind, "metadata": metadata, **obj})


def queue(name: str, *, priority: str | None = None) -> Observed:
    annotations = {} if priority is None else {names.DEFAULT_PRIORITY: priority}
    metadata = {"annotations": annotations}
    return seen(kinds.LOCAL_QUEUE, name, "team-a", metadata=metadata, spec={"clusterQueue": "q"})
