"""`make test-kueue KUEUE=tree`: runs the suites that are built in a tree of Kueue, one after another.

A suite is built if its folder contains a program `suite.test`. KUBEBUILDER_ASSETS names the folder with
kube-apiserver and etcd.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.kueue.report import exclusions, read, specs, summary

SUITES: Final = Path("test/integration/singlecluster")
PROGRAM: Final = "suite.test"
MINUTES_MAX: Final = 100


def say(line: str) -> None:
    """Write one line at once: a suite takes minutes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run(program: Path, folder: Path) -> Path:
    """Run one suite in its own folder; return where its report is."""
    report = folder / "report.json"
    environment = {"KUEUE_IT_KEEP": "1", "KUEUE_IT_METRICS": "scrape", **os.environ}
    environment |= {
        "KUEUE_IT_DIR": str(folder),
        "KUEUE_IT_METRICS_FILE": str(folder / "metrics.jsonl"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    with (folder / "out.txt").open("wb") as out:
        subprocess.run(
            [
                str(program),
                "--ginkgo.no-color",
                f"--ginkgo.json-report={report}",
                f"--ginkgo.timeout={MINUTES_MAX}m",
                f"-test.timeout={MINUTES_MAX + 5}m",
                *sys.argv[2:],
            ],
            cwd=program.parent,
            env=environment,
            stdout=out,
            stderr=out,
            check=False,
        )
    return report


def main() -> int:
    """Run all suites of the tree that the first argument names; 0 if every applicable spec passes."""
    if len(sys.argv) < 2:
        sys.stderr.write("usage: make test-kueue KUEUE=tree\n")
        return 2
    tree = Path(sys.argv[1]).resolve()
    programs = sorted((tree / SUITES).rglob(PROGRAM))
    if not programs:
        sys.stderr.write(f"{tree / SUITES}: no suite is built there ({PROGRAM})\n")
        return 2
    known, found = exclusions(), []
    folder = Path(tempfile.mkdtemp(prefix="kueue-suites-"))
    for program in programs:
        name = program.parent.relative_to(tree / SUITES).as_posix()
        here = folder / name.replace("/", "_")
        here.mkdir()
        ran = specs(read(run(program, here)), known)
        found += ran
        say(f"{name}: {summary(ran).partition(': ')[2]} ({here})")
        for spec in ran:
            if spec.verdict == "failed":
                say(f"  {spec.name}: {spec.why}")
    say(summary(found))
    return 0 if found and all(spec.verdict != "failed" for spec in found) else 1


if __name__ == "__main__":
    sys.exit(main())
