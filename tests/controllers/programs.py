"""Where the programs are that none of us wrote. Nothing here builds them."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SERVERS: Final = ("kube-apiserver", "etcd", "kube-controller-manager")
CONTROLLERS: Final = ("tekton-controller", "tekton-webhook", "tekton-resolvers", "kueue")
TREES: Final = {"TEKTON": "config/300-crds", "KUEUE": "config/default"}
"""Variable to a folder that its tree has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """All programs, and the trees with the manifests that go with them."""

    servers: Path
    controllers: Path
    tekton: Path
    kueue: Path


def find(environment: Mapping[str, str] = os.environ) -> Programs | str:
    """The programs, or a sentence that says what is missing."""
    lacking = []
    for variable, names in (("KUBEBUILDER_ASSETS", SERVERS), ("CONTROLLERS", CONTROLLERS)):
        folder = environment.get(variable)
        absent = [one for one in names if not folder or not shutil.which(one, path=folder)]
        if absent:
            lacking.append(f"{variable} has to name a folder with {', '.join(absent)}")
    for variable, inside in TREES.items():
        tree = environment.get(variable)
        if not tree or not (Path(tree) / inside).is_dir():
            lacking.append(f"{variable} has to name a tree with {inside}")
    if lacking:
        return "; ".join(lacking)
    return Programs(
        servers=Path(environment["KUBEBUILDER_ASSETS"]).resolve(),
        controllers=Path(environment["CONTROLLERS"]).resolve(),
        tekton=Path(environment["TEKTON"]).resolve(),
        kueue=Path(environment["KUEUE"]).resolve(),
    )
