"""Worlds that passed, kept for each state of the source: a run that was ended goes on where it ended."""

import json
from contextlib import suppress
from pathlib import Path

from services.simulator.scenarios.port import Verdict


class KeptWorlds:
    """The passed worlds of one scenario, in a file with a line for each."""

    def __init__(self, folder: Path, state: str, scenario: str) -> None:
        """`state`: that of the source, as `state_of_source` names it."""
        self._path = folder / f"{state}-{scenario}.jsonl"
        self._passed: dict[int, Verdict] = {}
        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        for line in text.splitlines():
            with suppress(ValueError):  # It was cut off: the process died while it wrote.
                one = Verdict(**json.loads(line))
                self._passed[one.seed] = one

    def get(self, seed: int) -> Verdict | None:
        """The verdict about a world that passed; None: it did not, or was not played."""
        return self._passed.get(seed)

    def put(self, verdict: Verdict) -> None:
        """Keep a verdict at once, if the world passed."""
        if verdict.problems:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        kept = {"seed": verdict.seed, "cpu_seconds": verdict.cpu_seconds, "probes": verdict.probes}
        with self._path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps(kept))
