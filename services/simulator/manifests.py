"""Applies manifests to a simulated cluster, as ``kubectl apply -f`` does."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from services.simulator.cluster.api import Api
from services.simulator.cluster.documents import parse_yaml
from services.simulator.cluster.errors import ApiError, bad_request
from services.simulator.cluster.kinds.registry import Obj
from services.simulator.cluster.storage.stored import Stored
from shared.runtime.command import not_yaml

FIRST: Final = ("CustomResourceDefinition", "Namespace")
"""Kinds that are applied first; all others follow in the order of the files."""


class ManifestError(Exception):
    """A document that the cluster refuses; the message names the file and the object."""

    def __init__(self, source: str, why: str) -> None:
        super().__init__(f"{source}: {why}")


def read_folder(path: Path) -> Iterator[tuple[str, Obj]]:
    """Yield (source, document) for every YAML document of a file, or of the files in a folder."""
    files = [path] if path.is_file() else sorted([*path.rglob("*.yaml"), *path.rglob("*.yml")])
    for file in files:
        try:
            documents = parse_yaml(file.read_bytes())
        except (yaml.YAMLError, ValueError) as error:
            raise ManifestError(str(file), not_yaml(error)) from error
        for document in documents:
            if document is None:
                continue
            if not isinstance(document, dict):
                raise ManifestError(str(file), "a document is not an object")
            entries = document["items"] if str(document.get("kind")) == "List" else [document]
            for entry in entries:
                yield str(file), entry


async def apply(api: Api, document: Obj) -> Stored:
    """Create the object, or merge the manifest into the existing one."""
    named = (str(document.get("apiVersion", "")), str(document.get("kind", "")))
    kind = api.kinds.by_kind(*named)
    if kind is None:
        raise bad_request(f'no matches for kind "{named[1]}" in version "{named[0]}"')
    version = named[0].rpartition("/")[2]
    metadata: dict[str, Any] = document.get("metadata") or {}
    namespace = metadata.get("namespace", "default") if kind.namespaced else ""
    name = metadata.get("name", "")
    if not name or api.store.get(kind, namespace, name) is None:
        return await api.create(kind, version, namespace, document)
    return await api.patch(kind, version, namespace, name, document, "merge")


async def apply_all(api: Api, documents: Iterable[tuple[str, Obj]]) -> int:
    """Apply all documents, definitions and namespaces first; return their number.

    Raises `ManifestError` at the first refusal.
    """
    ordered = sorted(documents, key=lambda entry: _rank(entry[1]))
    for source, document in ordered:
        try:
            await apply(api, document)
        except ApiError as error:
            raise ManifestError(source, error.message) from error
    return len(ordered)


def _rank(document: Obj) -> int:
    kind = document.get("kind")
    return FIRST.index(kind) if kind in FIRST else len(FIRST)
