"""The objects of an overlay with components, as `kubectl kustomize` and as Helm render them."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final

import yaml

__all__ = [
    "COMPONENTS",
    "KUBECTL",
    "OVERLAYS",
    "ROOT",
    "Json",
    "Pod",
    "kustomized",
    "named",
    "pods",
    "templates",
]

ROOT: Final = Path(__file__).parents[3]
KUBERNETES: Final = ROOT / "deploy" / "kubernetes"
KUBECTL: Final = Path(sys.executable).with_name("kubectl")
"""The wheel's: the same everywhere, whatever else is on the PATH."""

OVERLAYS: Final = tuple(
    sorted(path.parent.name for path in KUBERNETES.glob("overlays/*/kustomization.yaml"))
)
COMPONENTS: Final = (
    "pairs", "tracing", "spokes", "ha", "recreation", "pods", "encryption", "visibility",
    "alerts",
)  # fmt: skip
"""First those that add Deployments: the others change these as all else."""

Json = dict[str, Any]


@cache
def kustomized(
    overlay: str, components: tuple[str, ...] = (), *, definitions: bool = False
) -> tuple[Json, ...]:
    """What `kubectl apply -k` would apply; the definitions of kinds, which are long, only where asked for."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder).resolve()
        (here / "kustomization.yaml").write_text(
            yaml.safe_dump(
                {
                    "resources": [os.path.relpath(KUBERNETES / "overlays" / overlay, here)],
                    "components": [
                        os.path.relpath(KUBERNETES / "components" / name, here)
                        for name in components
                    ],
                }
            )
        )
        done = subprocess.run(
            [KUBECTL, "kustomize", here], capture_output=True, text=True, check=False, timeout=60
        )
    assert done.returncode == 0, done.stderr
    texts = done.stdout.split("\n---\n")
    wanted = [
        text for text in texts if definitions or "\nkind: CustomResourceDefinition\n" not in text
    ]
    return tuple(yaml.load(text, yaml.CSafeLoader) for text in wanted)


def named(documents: tuple[Json, ...]) -> dict[tuple[str, str], Json]:
    """By kind and name; nothing is there twice."""
    found = {(one["kind"], one["metadata"]["name"]): one for one in documents}
    assert len(found) == len(documents)
    return found


def templates(documents: tuple[Json, ...]) -> Iterator[tuple[str, Json]]:
    """Name of each Deployment, StatefulSet and Job, and the template of its pods."""
    for document in documents:
        if document["kind"] in {"Deployment", "StatefulSet", "Job"}:
            yield document["metadata"]["name"], document["spec"]["template"]


@dataclass(frozen=True, slots=True)
class Pod:
    """What network policies see of a pod."""

    name: str
    namespace: str
    labels: Json
    ports: dict[str, int]


def pods(documents: tuple[Json, ...]) -> dict[str, Pod]:
    """One for each template."""
    found = {}
    for name, template in templates(documents):
        containers = template["spec"]["containers"]
        ports = chain.from_iterable(container.get("ports") or () for container in containers)
        found[name] = Pod(
            name,
            "sluicegate",
            template["metadata"]["labels"],
            {port["name"]: port["containerPort"] for port in ports},
        )
    return found
