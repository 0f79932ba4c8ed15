"""`python -m tests.kueue.with_pods …`: `sluice …`, with the frameworks whose pods wait.

Kueue's suites leave out `integrations` in their configurations: each starts the controllers that it tests.
"""

import os
import sys
from pathlib import Path
from typing import Any, Final

import yaml

FRAMEWORKS: Final = ("pod", "deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset")
SETTING: Final = "SLUICE_CONFIGURATION"


def main(arguments: list[str]) -> None:
    """Become `sluice`."""
    if given := os.environ.get(SETTING):
        document: dict[str, Any] = yaml.safe_load(Path(given).read_text()) or {}
        document["integrations"] = {"frameworks": list(FRAMEWORKS)}
        made = Path(given).with_suffix(".with-pods.yaml")
        made.write_text(yaml.safe_dump(document))
        os.environ[SETTING] = str(made)
    os.execv(sys.executable, [sys.executable, "-m", "services.ctl.main", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
