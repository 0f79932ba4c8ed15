"""Which state of the source a result belongs to: what was found about one says nothing of another."""

import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Final

SOURCES: Final = ("services", "shared")
UNKNOWN: Final = "unknown"


def state_of_source(root: Path) -> str:
    """The commit, and a digest of what differs from it; `UNKNOWN` outside of a repository."""
    try:
        commit = _git(root, "rev-parse", "--short=12", "HEAD").strip()
        changes = _git(root, "diff", "HEAD", "--", *SOURCES)
        others = _git(root, "ls-files", "-z", "--others", "--exclude-standard", "--", *SOURCES)
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
    new = [name for name in others.split("\0") if name]
    added = "".join((root / name).read_text(encoding="utf-8", errors="replace") for name in new)
    digest = sha256(f"{changes}{new}{added}".encode()).hexdigest()[:8]
    return f"{commit}-{digest}" if changes or new else commit


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - git
    return done.stdout
