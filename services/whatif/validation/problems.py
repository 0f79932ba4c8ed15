"""Finds what is wrong with a change: what an API server refuses, and what can never start."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from services.classifier.conversion.convert import ConversionError, convert
from services.classifier.validation import validate
from services.classifier.validation.names import subdomain
from services.quota.engine.views.remedies import remedy_of_inactive
from services.quota.forecast import Simulation, Snapshot
from services.quota.forecast.snapshot import Id
from services.simulator.cluster.unknown_fields import BUILT_IN
from services.simulator.cluster.unknown_fields import unknown_fields as unknown_by_schema
from services.whatif.manifests import Manifest
from services.whatif.validation.missing_names import missing_in_queue, missing_in_workload
from services.whatif.validation.unknown_fields import unknown_fields
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import KUEUE_GROUP
from shared.contracts.kube.numbers import INT32_MAX
from shared.contracts.kube.quantities import QuantityError, parse_quantity
from shared.contracts.kueue.definitions import STORAGE, definition_of
from shared.contracts.messages.observed import Observed
from shared.contracts.reasons import CLUSTER_QUEUE_INACTIVE, HOPELESS, QUEUE_STOPPED
from shared.runtime.command import CommandError

_NO_PROBLEM: Final = frozenset({QUEUE_STOPPED, CLUSTER_QUEUE_INACTIVE})
"""Reasons of queues that somebody stopped, or whose ClusterQueue is named itself."""

_INDEX: Final = re.compile(r"\[\d+\]")
_COUNTS: Final = (
    "parallelism",
    "completions",
    "backoffLimit",
    "ttlSecondsAfterFinished",
)
_RESOURCES: Final = frozenset({"resources", "computeResources"})


def refuse_invalid(manifest: Manifest, last: Observed | None) -> None:
    """Raise `CommandError` for what the webhook refuses, and for fields that an API server would drop.

    `last`: the object as it is now, if there is one.
    """
    for path in _unknown(manifest):
        parent = _INDEX.sub("", f"{manifest.kind.plural}.{path}").rpartition(".")[0]
        raise CommandError(
            manifest.source,
            f"{manifest.title}: {path}: {manifest.kind.kind} has no such field",
            hint=f"`kubectl explain {parent}` lists the fields that there are",
        )
    try:
        obj = _as_stored(manifest.kind.api_version, manifest.kind.kind, manifest.object)
    except ConversionError as error:
        raise CommandError(manifest.source, f"{manifest.title}: {error}") from error
    old = None
    if last is not None and last.object is not None:
        old = _as_stored(f"{last.group}/{last.version}", last.kind, last.object)
    name = str(manifest.object["metadata"].get("name") or "")
    for problem in chain(subdomain("metadata.name", name) if name else (), validate(obj, old)):
        raise CommandError(manifest.source, f"{manifest.title}: {problem}")


def _as_stored(api_version: str, kind: str, obj: Mapping[str, Any]) -> dict[str, Any]:
    """The object in the version whose rules are known. Items of a list lack version and kind."""
    whole = {**obj, "apiVersion": api_version, "kind": kind}
    ours = api_version.startswith(f"{KUEUE_GROUP}/")
    return convert(whole, f"{KUEUE_GROUP}/{STORAGE}") if ours else whole


def _unknown(manifest: Manifest) -> Iterator[str]:
    """Paths of the fields that the kind does not have, as far as its schema is known here."""
    kind = manifest.kind
    definition = definition_of(kind.group, kind.plural)
    if definition is not None:
        return unknown_fields(definition.model_of(kind.version), manifest.object)
    schema = BUILT_IN.get(f"{kind.plural}.{kind.group}")
    return iter(()) if schema is None else unknown_by_schema(schema, manifest.object)


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


def refuse_malformed_job(manifest: Manifest) -> None:
    """Raise `CommandError` for a Job that every API server refuses, with the path of the field."""
    if (manifest.kind.group, manifest.kind.kind) != (kinds.JOB.group, kinds.JOB.kind):
        return
    spec = _mapping(manifest.object.get("spec"))
    for field in _COUNTS:
        value = spec.get(field)
        is_whole = type(value) is int or (isinstance(value, float) and value.is_integer())
        if value is not None and not (is_whole and 0 <= value <= INT32_MAX):
            raise CommandError(
                manifest.source,
                f"spec.{field}: must be a whole number from 0 to {INT32_MAX}, got {value!r}",
            )
    containers = _mapping(_mapping(spec.get("template")).get("spec")).get("containers")
    if not isinstance(containers, list) or not containers:
        raise CommandError(
            manifest.source, "spec.template.spec.containers: must list at least one container"
        )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


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


def not_admitting(
    before: Simulation, after: Simulation, changed: Snapshot, cluster: str, *, guesses: bool
) -> Iterator[tuple[str | None, str]]:
    """Each queue that admits nothing because of a change: its namespace if it has one, and a sentence.

    `changed`: what `after` begins with. `guesses`: tell names that were probably meant.
    """
    known = {title for title, _ in _inactive(before, cluster)}
    for title, (reason, message) in _inactive(after, cluster):
        if title not in known and reason not in _NO_PROBLEM:
            kind, _, name = title.partition(" ")
            namespace = name.partition("/")[0] if kind == kinds.LOCAL_QUEUE.kind else None
            missing = "; ".join(missing_in_queue(changed, cluster, title, guesses=guesses))
            remedy = remedy_of_inactive(reason)
            problem = missing or f"{message.rstrip('. ')}; {remedy}"
            yield namespace, f"{title} would admit nothing: {problem}"


def _inactive(simulation: Simulation, cluster: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Kind and name of each queue that admits nothing, and reason and message."""
    cluster_queues, local_queues = simulation.engine.snapshot(cluster)
    for kind, queues in ((kinds.CLUSTER_QUEUE, cluster_queues), (kinds.LOCAL_QUEUE, local_queues)):
        for queue in queues:
            if queue.inactive is not None:
                yield f"{kind.kind} {queue.name}", queue.inactive


def never_starting(
    simulation: Simulation, snapshot: Snapshot, added: Iterable[Id], *, guesses: bool
) -> Iterator[str]:
    """One sentence for each new workload that cannot start as things are, and what to do."""
    for ident in added:
        explanation = simulation.engine.explain(*ident)
        if explanation is None or explanation.reason not in HOPELESS:
            continue
        state = snapshot.workloads[ident]
        owner = "Workload" if state.owner is None else state.owner.kind
        name = state.name if state.owner is None else state.owner.name
        missing = missing_in_workload(snapshot, state, guesses=guesses)
        problem = missing or f"{explanation.message.rstrip('. ')}; {explanation.remedy}"
        yield f"{owner} {state.namespace}/{name} would wait forever: {problem}"
