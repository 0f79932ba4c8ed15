"""The packages that the image contains, as `uv.lock` has them."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[3]
LOCK: Final = ROOT / "uv.lock"
OURS: Final = "sluicegate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One locked package."""

    name: str
    version: str
    hashes: tuple[tuple[str, str], ...]
    """URL and SHA-256 of each file that may be installed."""

    needs: tuple[str, ...]
    """Names of the packages that it depends on."""

    @property
    def purl(self) -> str:
        """Its package URL."""
        return f"pkg:pypi/{self.name}@{self.version}"


def runtime_packages(lock: Path = LOCK) -> list[Package]:
    """Return what ours needs to run, sorted by name; ours itself is the first."""
    known = {one["name"]: one for one in tomllib.loads(lock.read_text())["package"]}
    found: dict[str, Package] = {}
    left = [OURS]
    while left:
        name = left.pop()
        if name not in found:
            found[name] = _package(known[name])
            left += found[name].needs
    ours = found.pop(OURS)
    return [ours, *(found[name] for name in sorted(found))]


def _package(entry: dict[str, Any]) -> Package:
    return Package(
        name=entry["name"],
        version=entry["version"],
        hashes=tuple(_files(entry)),
        needs=tuple(sorted(set(_needs(entry)))),
    )


def _needs(entry: dict[str, Any]) -> Iterator[str]:
    groups = [entry.get("dependencies", ()), *entry.get("optional-dependencies", {}).values()]
    for group in groups:
        for one in group:
            yield one["name"]


def _files(entry: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for file in (*entry.get("wheels", ()), *([entry["sdist"]] if "sdist" in entry else ())):
        yield file["url"], file["hash"].removeprefix("sha256:")
