"""`sluice dev` as a process, on a cluster that exists."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shared.settings.environment import child_environment
from shared.testing.waiting import eventually
from tests.kueue.beside.clusters import Cluster

STOP_SECONDS: Final = 60.0
RULES: Final = "queueName: main\n"


class Sluicegate:
    """Sluicegate on one cluster. Start and stop it as often as needed: what it wrote stays."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.folder = cluster.folder / "sluice"
        self._rules = cluster.folder / "rules"
        self._rules.mkdir()
        (self._rules / "config.yaml").write_text(RULES)

    @contextmanager
    def process(self, environment: Mapping[str, str] | None = None) -> Iterator[None]:
        """Run it for as long as the context lasts."""
        self._state.unlink(missing_ok=True)
        command = [
            *(sys.executable, "-m", "services.ctl.main", "dev", "--quiet", "--webhook"),
            *("--kubeconfig", str(self._cluster.kubeconfig)),
            *("--directory", str(self.folder), "--rules", str(self._rules)),
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=Path(__file__).parents[3],
                env=child_environment(dict(environment or {})),
            )
            try:
                yield
            finally:
                self._process.send_signal(signal.SIGINT)
                self._process.wait(STOP_SECONDS)

    async def ready(self) -> None:
        """Return once all services are ready and the webhook is registered."""

        def runs() -> bool:
            assert self._process.poll() is None, self.log()
            return self._state.exists()

        await eventually(runs, self.log, look_seconds=0.2)

    def log(self) -> str:
        """The end of what it wrote."""
        return self._log.read_text(errors="replace")[-4000:]

    def give_kubeconfig(self, secret: str, kubeconfig: str) -> None:
        """Put a kubeconfig where the pairs look for the Secret of that name."""
        folder = self.folder / "spokes" / secret
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kubeconfig").write_text(kubeconfig)

    @property
    def _state(self) -> Path:
        return self.folder / "state.json"

    @property
    def _log(self) -> Path:
        return self._cluster.folder / "sluice.log"
