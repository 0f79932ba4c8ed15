"""Every command that a document shows is run, or is listed here with the reason why it is not."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import pytest
from nats.errors import Error as NatsError

from services.ctl.connect.reader import access_for, nats_url_of
from tests.e2e import nats_commands
from tests.e2e.documents import ROOT, Command, File, Session, matches, pages, steps

OTHER: Final = "needs another's program and an API server of its own"
INSTALLED: Final = "changes what is installed in a real cluster"
LETTER: Final = (
    "needs a message that nobody could read; tests/integration/test_dead_letters.py has one"
)
ENGINE: Final = "needs a Docker engine"
ITSELF: Final = "is how the tests are run"
NOT_RUN: Final = {
    "make setup": "was run before this test could be",
    "make demo": "tests/e2e/test_demo.py runs it",
    "sluice demo": "tests/e2e/test_demo.py runs it, and it takes a minute",
    "make test": ITSELF,
    "make bench-cluster": "takes minutes and tells of this machine only",
    "make bench-bus": "takes a minute and tells of this machine only",
    "kubectl patch configmap feature-flags": "nobody installed Tekton in the simulated cluster",
    "kubectl --kubeconfig F": OTHER,
    "sluice dev --kubeconfig F": OTHER,
    "runner ": OTHER,
    "make bench-rest": "takes minutes and tells of this machine only",
    "sluice bus apply --nats-url": OTHER,
    "sluice run all": "tests/e2e/test_dev.py runs it",
    "kubectl scale deployment": INSTALLED,
    "kubectl delete mutatingwebhookconfiguration": INSTALLED,
    "kubectl apply --server-side --force-conflicts -k": INSTALLED,
    "kubectl create configmap classifier-config": INSTALLED,
    "kubectl create namespace sluicegate": INSTALLED,
    "sluice bus permissions --keys nats-keys --kubernetes | kubectl": INSTALLED,
    "kubectl apply --server-side -f nats-users.yaml": INSTALLED,
    "kubectl -n sluicegate delete job bus-apply": INSTALLED,
    "kubectl --server http://127.0.0.1:8001": ENGINE,
    "kubectl -n default get": "the simulated cluster has no endpoints of its API server",
    "kubectl delete -k": INSTALLED,
    "sluice uninstall --kubeconfig ~/.kube/config": INSTALLED,
    "sluice uninstall --yes": "would take all from this `sluice dev`; see test_uninstall.py",
    "sluice dead show team-a/": LETTER,
    "sluice dead retry team-a/": LETTER,
    "docker ": ENGINE,
    "kubectl get --raw /apis/visibility": "needs the component in a real cluster; "
    "tests/integration/console/test_aggregation.py asks as its API server does",
    "helm ": "tests/contract/deploy/test_helm.py renders the chart with Helm's own library",
}
"""How a command begins, and why it is not run."""

OF_THEIR_OWN: Final = {"docs/how-to/spokes.md": ("--spokes", "2")}
"""Pages that begin with another `sluice dev`, and its options."""

PATIENCE_SECONDS: Final = 120.0
"""How long a reader looks again."""

NATS_PAGE: Final = "how-to/trace-with-nats.md"

RUNNING: Final = {
    *("sluice dev", "sluice dev --quiet"),
    *(f"sluice dev {' '.join(options)}" for options in OF_THEIR_OWN.values()),
}
"""Was started, once for all pages but those."""


@dataclass(frozen=True, slots=True)
class Ran:
    command: Command
    problem: str = ""


def excuse(line: str) -> str | None:
    return next((begin for begin in NOT_RUN if line.startswith(begin)), None)


def played(session: Session, path: Path) -> Iterator[Ran]:
    """Follow a page as its reader would."""
    for step in steps(path):
        if isinstance(step, File):
            session.write(step)
        elif step.line not in RUNNING and excuse(step.line) is None:
            yield Ran(step, _problem(session, step))


def _problem(session: Session, command: Command) -> str:
    if command.line.startswith("nats "):
        folder = session.folder / ".sluice"
        try:
            nats_commands.run(command.line, nats_url_of(None, folder), access_for(None, folder))
        except (AssertionError, NatsError, OSError, ValueError) as error:
            return repr(error)
        return ""
    status, printed = session.run(command.line)
    deadline = monotonic() + PATIENCE_SECONDS
    while _looks_again(command, status, printed) and monotonic() < deadline:
        sleep(0.5)
        status, printed = session.run(command.line)
    text = "\n".join(printed)
    if command.shown is not None and not matches(command.shown, printed):
        return f"exit status {status}, printed:\n{text}"
    return "" if _as_it_should(command, status) else f"exit status {status}:\n{text}"


def _looks_again(command: Command, status: int, printed: list[str]) -> bool:
    """Whether a reader would repeat the command: it shows how things stand, and they are not so yet."""
    if command.line.startswith(("sluice status", "sluice doctor")) and status != 0:
        return True
    shows = command.line.startswith(("sluice get ", "sluice explain ", "sluice history "))
    return shows and command.shown is not None and not matches(command.shown, printed)


def _as_it_should(command: Command, status: int) -> bool:
    """0; else the page shows the refusal, or it is a plan, of which 1 says that something changes."""
    refused = (command.shown or [""])[0].startswith("sluice: ")
    planned = shlex.split(command.line)[:2] == ["sluice", "plan"] and status == 1
    return (status == 0) != refused or planned


def followed(folder: Path, paths: list[Path], *options: str) -> list[Ran]:
    """Pages in their order, all beside one `sluice dev`, and each command that does not as it should."""
    session = Session(folder)
    try:
        session.start(*options)
        ran = [one for path in paths for one in played(session, path)]
    finally:
        session.close()
    wrong = [f"{one.command}\n{one.problem}" for one in ran if one.problem]
    assert not wrong, "\n\n".join([*wrong, *session.errors()])
    return ran


def test_every_documented_command_runs(tmp_path: Path) -> None:
    own = [ROOT / page for page in OF_THEIR_OWN]
    ran = followed(tmp_path, [path for path in pages() if path not in own])
    assert len(ran) > 50, "documents have commands"


@pytest.mark.parametrize("page", OF_THEIR_OWN)
def test_every_command_of_a_page_with_a_system_of_its_own_runs(page: str, tmp_path: Path) -> None:
    assert len(followed(tmp_path, [ROOT / page], *OF_THEIR_OWN[page])) > 10


def test_viewer_may_follow_a_workload_with_the_nats_tool(
    tmp_path: Path,
) -> None:
    """With users and TLS: every command of that page, after the first steps that it builds on."""
    first_steps, trace = (ROOT / "docs" / page for page in ("tutorial/first-steps.md", NATS_PAGE))
    ran = followed(tmp_path, [first_steps, trace], "--secure")
    assert sum(one.command.line.startswith("nats ") for one in ran) > 15
    assert [*tmp_path.glob(".sluice/**/viewer.nk")], "that was with users"


def test_every_exempted_command_is_still_documented() -> None:
    lines = [step.line for path in pages() for step in steps(path) if isinstance(step, Command)]
    assert [begin for begin in NOT_RUN if not any(line.startswith(begin) for line in lines)] == []


@pytest.mark.parametrize("text", ["```\nsluice get workloads\n```\n", "\n    make demo\n"])
def test_every_documented_command_is_in_a_shell_block(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(AssertionError, match=r"page\.md:[12]: "):
        list(steps(page))
