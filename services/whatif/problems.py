"""Finds what is wrong with new jobs: what an API server refuses, and what can never start."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from services.quota.forecast import Simulation, Snapshot
from services.quota.forecast.snapshot import Id
from services.whatif.manifests import Manifest
from shared.contracts.kube import kinds
from shared.contracts.kube.names import QUEUE
from shared.contracts.kube.quantities import QuantityError, parse_quantity
from shared.contracts.messages.workloads import WorkloadState
from shared.contracts.reasons import HOPELESS
from shared.runtime.command import CommandError

_RESOURCES: Final = frozenset({"resources", "computeResources"})


def refuse_bad_quantities(manifest: Manifest) -> None:
    """Raise `CommandError` for a request or limit that no API server accepts."""
    for path, text in _quantities("", manifest.object):
        try:
            amount = parse_quantity(text)
        except QuantityError as error:
            raise CommandError(
                manifest.source,
                f"{path}: {error}",
                hint="the API server would refuse it: write a quantity such as 1, 500m or 2Gi",
            ) from error
        if amount < 0:
            raise CommandError(manifest.source, f"{path}: {text!r}: must not be negative")


def _quantities(path: str, node: Any) -> Iterator[tuple[str, str]]:
    """Path and text of each request and limit below `node`."""
    if isinstance(node, list):
        for index, item in enumerate(node):
            yield from _quantities(f"{path}[{index}]", item)
    if not isinstance(node, Mapping):
        return
    for key, value in node.items():
        below = f"{path}.{key}".lstrip(".")
        if key in _RESOURCES and isinstance(value, Mapping):
            for part in ("requests", "limits"):
                amounts = value.get(part)
                for resource, amount in amounts.items() if isinstance(amounts, Mapping) else ():
                    yield f"{below}.{part}.{resource}", str(amount)
        else:
            yield from _quantities(below, value)


def never_starting(
    simulation: Simulation, snapshot: Snapshot, added: Iterable[Id]
) -> Iterator[str]:
    """One sentence for each new workload that cannot start as things are, and what to do."""
    for ident in added:
        told = simulation.engine.explain(*ident)
        if told is None or told.reason not in HOPELESS:
            continue
        state = snapshot.workloads[ident]
        owner = "Workload" if state.owner is None else state.owner.kind
        name = state.name if state.owner is None else state.owner.name
        problem = _missing_queue(snapshot, state) or f"{told.message.rstrip('. ')}; {told.remedy}"
        yield f"{owner} {state.namespace}/{name} would wait for ever: {problem}"


def _missing_queue(snapshot: Snapshot, state: WorkloadState) -> str:
    """What is wrong with the name of its queue; empty if there is such a LocalQueue."""
    names = sorted(
        each.name
        for each in snapshot.of(kinds.LOCAL_QUEUE, state.cluster)
        if each.namespace == state.namespace
    )
    if state.queue in names:
        return ""
    where = f"label {QUEUE}: {state.queue!r}: namespace {state.namespace} has no such LocalQueue"
    if close := get_close_matches(state.queue, names, n=1):
        return f"{where}; did you mean {close[0]!r}?"
    return f"{where}; there are {', '.join(names)}" if names else f"{where}, and none at all"
