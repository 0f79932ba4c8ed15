"""The docs site builds without a warning: every page is in it, and every link and anchor has a target."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_docs_site_builds_without_a_warning(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (built.returncode, built.stdout) == (0, ""), built.stdout + built.stderr
    for page in ("index", "contributing/index", "how-to/troubleshoot/index", "adr/index"):
        assert (tmp_path / f"{page}.html").is_file(), page
    assert (tmp_path / "files" / "compose.yaml").is_file()
