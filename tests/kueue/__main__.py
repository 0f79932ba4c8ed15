"""`make test-kueue KUEUE=tree`: builds the suites in a tree of Kueue and runs them, one after another.

Where Go is on the PATH, each suite is built as `suite.test` in its folder; else only those that were built
so run. KUBEBUILDER_ASSETS names the folder with kube-apiserver and etcd.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.kueue.record import add
from tests.kueue.report import Spec, exclusions, read, results, skip_pattern, specs, summary

INTEGRATION: Final = Path("test/integration")
FOLDERS: Final = ("singlecluster", ".")
"""Where suites are, below the folder of integration tests."""

SUITES: Final = (
    "conversion",
    "webhook/core",
    "webhook/jobs",
    "controller/core",
    "controller/jobs/job",
    "controller/jobs/jobset",
    "controller/jobs/pod",
    "controller/admissionchecks/provisioning",
    "scheduler",
    "scheduler/delayedadmission",
    "scheduler/excluderesources",
    "scheduler/fairsharing",
    "scheduler/inadmissible",
    "scheduler/podsready",
    "scheduler/quotacheckstrategy",
    "scheduler/resourcetransformations",
    "kueuectl",
    "multikueue",
)
PROGRAM: Final = "suite.test"
HOME: Final = Path(__file__).parents[2]
MINUTES_MAX: Final = 100


def say(line: str) -> None:
    """Write one line at once: a suite takes minutes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def folder_of(tree: Path, suite: str) -> Path | None:
    """Where the sources of a suite are; None if the tree has none of this name."""
    folders = (tree / INTEGRATION / each / suite for each in FOLDERS)
    return next((folder for folder in folders if any(folder.glob("*_test.go"))), None)


def build(tree: Path, folder: Path) -> Path | None:
    """Build a suite, if Go is there; return its program, None if there is none."""
    program = folder / PROGRAM
    if shutil.which("go"):
        package = f"./{folder.relative_to(tree).as_posix()}"
        environment = {"GOFLAGS": "-mod=vendor", "GOTOOLCHAIN": "local", **os.environ}
        argv = ["go", "test", "-vet=off", "-c", "-ldflags=-s -w", "-o", str(program), package]
        built = subprocess.run(argv, cwd=tree, env=environment, check=False)
        if built.returncode != 0:
            program.unlink(missing_ok=True)  # An older program would be taken for this one.
    return program if program.exists() else None


def run(program: Path, suite: str, folder: Path, flags: list[str]) -> Path:
    """Run one suite in its own folder; return where its report is."""
    report = folder / "report.json"
    environment = {"KUEUE_IT_KEEP": "1", "KUEUE_IT_METRICS": "scrape", **os.environ}
    if suite.endswith("/jobs") or "/jobs/" in suite:
        with_pods = {"KUEUE_IT_SLUICE": f"{sys.executable} -m tests.kueue.with_pods"}
        environment = with_pods | {"KUEUE_IT_SLUICE_HOME": str(HOME)} | environment
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
                f"--ginkgo.skip={skip_pattern(exclusions())}",
                *flags,
            ],
            cwd=program.parent,
            env=environment,
            stdout=out,
            stderr=out,
            check=False,
        )
    return report


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="make test-kueue", description=__doc__)
    made.add_argument("tree", type=Path, help="a tree of Kueue, changed to start `sluice dev`")
    made.add_argument("--suite", action="append", choices=SUITES, help="only these suites")
    made.add_argument("--record", action="store_true", help="keep the results in recorded.json")
    made.add_argument("flags", nargs="*", help="flags for Ginkgo, behind `--`")
    return made


def main() -> int:
    """Run the suites of the tree; 0 if every spec that counts passes."""
    arguments = parser().parse_args()
    tree: Path = arguments.tree.resolve()
    known = exclusions()
    found: list[Spec] = []
    missing: list[str] = []
    out = Path(tempfile.mkdtemp(prefix="kueue-suites-"))
    for suite in arguments.suite or SUITES:
        sources = folder_of(tree, suite)
        program = build(tree, sources) if sources is not None else None
        if program is None:
            missing.append(suite)
            say(f"{suite}: not built")
            continue
        here = out / suite.replace("/", "_")
        here.mkdir()
        ended = results(read(run(program, suite, here, arguments.flags)))
        if arguments.record:
            add(suite, ended)
        ran = specs(ended, known)
        found += ran
        say(f"{suite}: {summary(ran).partition(': ')[2]} ({here})")
        for spec in ran:
            if spec.verdict in {"failed", "not run"}:
                say(f"  {spec.name}: {spec.why or spec.verdict}")
    if missing:
        say(f"not built, so not counted: {', '.join(missing)}")
    say(summary(found))
    return 0 if found and not missing and _is_clean(found) else 1


def _is_clean(found: list[Spec]) -> bool:
    return all(spec.verdict in {"passed", "not applicable"} for spec in found)


if __name__ == "__main__":
    sys.exit(main())
