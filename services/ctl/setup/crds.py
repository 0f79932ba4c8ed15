"""`python -m services.ctl.setup.crds`: write `deploy/kubernetes/crds` from the models."""

import sys
from pathlib import Path
from typing import Any, Final

import yaml
from typing_extensions import override

from shared.contracts.coscheduling import COMPONENT_LABEL
from shared.contracts.kueue.definitions import ALL_DEFINITIONS, crd

FOLDER: Final = Path(__file__).parents[3] / "deploy" / "kubernetes" / "crds"

DEFINITION: Final = {COMPONENT_LABEL: "definitions"}
"""Label of the definitions: `kubectl delete -k` keeps them where its selector says so."""

_GENERATED: Final = (
    "# Generated from shared/contracts/kueue by `python -m services.ctl.setup.crds`.\n"
)
_PLAIN: Final = """\
# For a cluster without our webhook: v1beta2 is stored, v1beta1 is served where it says the same.
# What v1beta1 says otherwise is refused with the words to write instead, never dropped.
"""
_CONVERTING: Final = """\
# For a cluster with our webhook: the classifier converts between v1beta1 and v1beta2 without loss.
# cert-manager fills in the caBundle. Apply with `kubectl apply --server-side -k`.
"""


class _ReadableDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """YAML without anchors, for readers."""

    @override
    def ignore_aliases(self, _data: Any) -> bool:
        """No node refers to another."""
        return True


def files() -> dict[str, str]:
    """The text of each file, by its path below `FOLDER`."""
    written = {}
    for webhook, folder, about in ((False, "", _PLAIN), (True, "webhook/", _CONVERTING)):
        names = []
        for definition in ALL_DEFINITIONS:
            name = f"{definition.kind.group}_{definition.kind.plural}.yaml"
            names.append(name)
            written[f"{folder}{name}"] = _GENERATED + _text(crd(definition, webhook=webhook))
        written[f"{folder}kustomization.yaml"] = about + _text(
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "resources": sorted(names),
                "labels": [{"pairs": DEFINITION, "includeSelectors": False}],
            }
        )
    return written


def _text(document: Any) -> str:
    text: str = yaml.dump(document, Dumper=_ReadableDumper, sort_keys=False, width=100)
    return text


def main() -> int:
    """Write all files; say which."""
    for name, text in files().items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path.relative_to(FOLDER.parents[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
