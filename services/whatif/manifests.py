"""Reads manifests from files and folders, and checks what can be checked without a cluster."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml
from typing_extensions import override

from shared.contracts.kube import kinds
from shared.contracts.kube.bodies import Body, as_body
from shared.contracts.kube.kinds import Kind
from shared.runtime.command import CommandError, not_yaml, unreadable


def _rbac(kind: str, *, namespaced: bool = False) -> Kind:
    return Kind(
        group="rbac.authorization.k8s.io",
        version="v1",
        plural=f"{kind.lower()}s",
        kind=kind,
        namespaced=namespaced,
    )


_ORDER: Final = (
    kinds.NAMESPACE,
    kinds.CONFIG_MAP,
    kinds.SECRET,
    kinds.NODE,
    *kinds.CONFIGURATION_KINDS[1:],
    kinds.MUTATING_WEBHOOK,
    _rbac("ClusterRole"),
    _rbac("ClusterRoleBinding"),
    _rbac("Role", namespaced=True),
    _rbac("RoleBinding", namespaced=True),
    kinds.WORKLOAD,
    kinds.JOB,
    kinds.PIPELINE_RUN,
    kinds.TASK_RUN,
)
"""The order of application: an object comes after those that it refers to."""

_BY_NAME: Final = {(kind.group, kind.kind): kind for kind in _ORDER}
_NOT_OBJECTS: Final = frozenset({"Kustomization"})
STDIN: Final = Path("-")
"""As kubectl has it: what is read comes from standard input."""

SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML as Kubernetes reads it: a date is a string, because JSON has no dates, and no key comes twice."""

    @override
    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """The mapping of a node. Raises `ConstructorError` for a key that comes twice."""
        seen: set[str] = set()
        for key in (each.value for each, _ in node.value if isinstance(each, yaml.ScalarNode)):
            if key in seen:
                text = f"the key {key!r} comes twice"
                raise yaml.constructor.ConstructorError(None, None, text, node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One object of a file."""

    source: str
    """The file, and which of its documents if it holds several."""

    kind: Kind
    """With the version that the manifest names."""

    object: Body

    @property
    def title(self) -> str:
        """For instance ``ClusterQueue cluster-pipeline-queue``."""
        metadata = self.object["metadata"]
        namespace = metadata.get("namespace")
        name = metadata.get("name") or f"{metadata.get('generateName', '')}…"
        return f"{self.kind.kind} {f'{namespace}/' if namespace else ''}{name}"


def load_documents(path: Path) -> list[tuple[str, Any]]:
    """All YAML documents of a file, each with its place. Raises `CommandError`."""
    try:
        text = sys.stdin.read() if path == STDIN else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(str(path), unreadable(error)) from error
    try:
        # Safe: `_Loader` is the safe loader without dates.
        documents = list(yaml.load_all(text, Loader=_Loader))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise CommandError(str(path), not_yaml(error)) from error
    several = len(documents) > 1
    return [
        (f"{path} (document {number})" if several else str(path), document)
        for number, document in enumerate(documents, start=1)
        if document is not None
    ]


def load_manifests(paths: Iterable[Path]) -> list[Manifest]:
    """The objects of these files and folders (subfolders are left out), in the order of application.

    Raises `CommandError` with file, field and value of the first problem.
    """
    found: list[Manifest] = []
    for path in paths:
        for file in _files(path):
            for source, document in load_documents(file):
                found += _objects(source, document)
    return sorted(found, key=_rank)


def _files(path: Path) -> list[Path]:
    try:
        return _existing_files(path)
    except OSError as error:
        raise CommandError(str(path), unreadable(error)) from error


def _existing_files(path: Path) -> list[Path]:
    if path == STDIN:
        return [path]
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
        if not files:
            raise CommandError(str(path), "has no manifests (*.yaml, *.yml, *.json)")
        return files
    if not path.exists():
        raise CommandError(
            str(path), "there is no such file or folder", hint="give a file or folder of manifests"
        )
    return [path]


def _objects(source: str, document: Any) -> list[Manifest]:
    if isinstance(document, dict) and document.get("kind") in _NOT_OBJECTS:
        return []
    if isinstance(document, dict) and document.get("kind") == "List":
        items = document.get("items") or []
        return [to_manifest(f"{source} items[{index}]", item) for index, item in enumerate(items)]
    return [to_manifest(source, document)]


def to_manifest(source: str, document: Any) -> Manifest:
    """Check that `document` is an object of a kind that `sluice` applies. Raises `CommandError`."""
    if not isinstance(document, dict):
        raise CommandError(source, f"is no object, but {_shown(document)}")
    api_version = _text(source, document, "apiVersion")
    name = _text(source, document, "kind")
    group, _, version = api_version.rpartition("/")
    kind = _BY_NAME.get((group, name))
    if kind is None:
        raise CommandError(
            source,
            f"kind: {name} of {api_version} is not one that sluice applies",
            hint=f"there are {', '.join(loaded.kind for loaded in _ORDER)}; use kubectl for others",
        )
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        raise CommandError(source, f"metadata: must be an object, got {_shown(metadata)}")
    if not metadata.get("name") and not metadata.get("generateName"):
        raise CommandError(source, f"metadata.name: {name} needs a name or a generateName")
    for field in ("name", "generateName", "namespace"):
        value = metadata.get(field)
        if value is not None and not isinstance(value, str):
            raise CommandError(
                source, f"metadata.{field}: must be a string, got {_shown(value)}; quote it"
            )
    for field in ("labels", "annotations"):
        _check_texts(source, f"metadata.{field}", metadata.get(field))
    return Manifest(source=source, kind=replace(kind, version=version), object=as_body(document))


def _check_texts(source: str, path: str, texts: Any) -> None:
    """Raise `CommandError` unless this is absent, or an object of strings."""
    if texts is None:
        return
    if not isinstance(texts, dict):
        raise CommandError(source, f"{path}: must be an object, got {_shown(texts)}")
    for key, value in texts.items():
        if not isinstance(value, str):
            raise CommandError(
                source, f"{path}[{key}]: must be a string, got {_shown(value)}; quote it"
            )


def _text(source: str, document: dict[str, Any], field: str) -> str:
    value = document.get(field)
    if not isinstance(value, str) or not value:
        raise CommandError(source, f"{field}: must be a string, got {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)[:80]


def _rank(manifest: Manifest) -> int:
    return _ORDER.index(_BY_NAME[manifest.kind.group, manifest.kind.kind])
