"""The rules of the webhook for the kinds that Integration objects define.

What the patcher adds it notes in an annotation of the configuration, and only that does it remove again.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from services.patcher.cluster.patches import JsonPatch
from shared.contracts.kube.kinds import Kind
from shared.contracts.kube.names import ADDED_RULES
from shared.contracts.webhook import CREATIONS, KIND_UPDATES, UPDATES

_WEBHOOKS: Final = {
    "CREATE": (CREATIONS,),
    "UPDATE": (KIND_UPDATES, UPDATES),
}
"""The webhooks of that configuration that review the kinds that can wait, by operation. A missing rule goes
to the first that there is: older manifests have no `KIND_UPDATES`."""

_Resource = tuple[str, str, str]
"""Group, version and plural."""


def rules_patch(configuration: Mapping[str, Any], wanted: tuple[Kind, ...]) -> JsonPatch:
    """Operations that add a rule for each kind that has none, and remove what was added for others.

    They are for this version of the configuration alone. Empty if nothing is to be changed.
    """
    kinds = [(kind.group, kind.version, kind.plural) for kind in wanted]
    added = set(_added(configuration))
    patch: JsonPatch = []
    new: set[_Resource] = set()
    for operation, index, webhook, present in _reviewing(configuration):
        missing = [kind for kind in kinds if kind not in present]
        patch += _removals(index, webhook, operation, added.difference(kinds))
        patch += [_addition(index, operation, kind) for kind in missing]
        new.update(missing)
    noted = (added & set(kinds)) | new
    return [*patch, *_note(configuration, noted)] if noted != added or patch else []


def _reviewing(
    configuration: Mapping[str, Any],
) -> Iterator[tuple[str, int, Mapping[str, Any], set[_Resource]]]:
    """For each operation: index and body of the webhook that gets its rules, and what is reviewed."""
    webhooks = {
        webhook.get("name"): (index, webhook)
        for index, webhook in enumerate(configuration.get("webhooks") or [])
    }
    for operation, named in _WEBHOOKS.items():
        there = [webhooks[name] for name in named if name in webhooks]
        if there:
            index, webhook = there[0]
            yield (
                operation,
                index,
                webhook,
                {resource for _, one in there for resource in _resources(one)},
            )


def _addition(index: int, operation: str, resource: _Resource) -> dict[str, Any]:
    return {"op": "add", "path": f"/webhooks/{index}/rules/-", "value": _rule(operation, resource)}


def _removals(
    index: int, webhook: Mapping[str, Any], operation: str, gone: set[_Resource]
) -> Iterator[dict[str, Any]]:
    """The last rule first, so that the places of the others stay."""
    ours = [_rule(operation, resource) for resource in gone]
    for place, rule in reversed(list(enumerate(webhook.get("rules") or []))):
        if any(one.items() <= rule.items() for one in ours):
            yield {"op": "remove", "path": f"/webhooks/{index}/rules/{place}"}


def _rule(operation: str, resource: _Resource) -> dict[str, Any]:
    group, version, plural = resource
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": [operation],
        "resources": [plural],
    }


def _added(configuration: Mapping[str, Any]) -> Iterator[_Resource]:
    """The kinds for which rules were added, as the annotation has them: `<group>/<version>/<plural>`."""
    annotations = (configuration.get("metadata") or {}).get("annotations") or {}
    for text in str(annotations.get(ADDED_RULES) or "").split(","):
        if text.count("/") == 2:
            group, version, plural = text.split("/")
            yield group, version, plural


def _note(configuration: Mapping[str, Any], noted: Iterable[_Resource]) -> JsonPatch:
    value = ",".join(sorted("/".join(resource) for resource in noted))
    if (configuration.get("metadata") or {}).get("annotations"):
        path = f"/metadata/annotations/{ADDED_RULES.replace('/', '~1')}"
        return [{"op": "add", "path": path, "value": value}]
    return [{"op": "add", "path": "/metadata/annotations", "value": {ADDED_RULES: value}}]


def _resources(webhook: Mapping[str, Any]) -> Iterator[_Resource]:
    """Group, version and plural of what a webhook reviews."""
    for rule in webhook.get("rules") or []:
        for group in rule.get("apiGroups") or []:
            for version in rule.get("apiVersions") or []:
                for resource in rule.get("resources") or []:
                    yield group, version, resource
