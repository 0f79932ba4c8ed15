"""What was found about each mutant, kept for each commit."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantResult:
    """What the worlds said about one mutant."""

    found: bool
    scenario: str = ""
    seed: int = 0
    problem: str = ""
    """What the safety check said; of a mutant that was not found, why."""

    played: int = 0
    """Number of worlds."""

    cpu_seconds: float = 0.0


class Results:
    """The results of one state of the source, in one file."""

    def __init__(self, folder: Path, state: str) -> None:
        self._path = folder / f"{state}.json"
        self._found: dict[str, MutantResult] = {}
        if self._path.exists():
            kept = json.loads(self._path.read_text(encoding="utf-8"))
            self._found = {name: MutantResult(**one) for name, one in kept.items()}

    def get(self, name: str) -> MutantResult | None:
        """What is known of a mutant; None: it was not played to its end."""
        return self._found.get(name)

    def put(self, name: str, result: MutantResult) -> None:
        """Keep a result at once."""
        self._found[name] = result
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({name: asdict(one) for name, one in self._found.items()}, indent=1)
        self._path.write_text(text, encoding="utf-8")
