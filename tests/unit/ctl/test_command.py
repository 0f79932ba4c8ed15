"""The command line as a user meets it: quick help, errors in sentences, documented exit statuses."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from services.ctl.cli.commands import ENTRIES
from services.ctl.dev.app import EXAMPLE
from services.ctl.main import app
from services.ctl.programs import Program
from shared.runtime.command import Exit
from shared.testing.waiting import PATIENCE_SECONDS
from tests.unit.ctl.bad_input import NO_SERVER
from tests.unit.ctl.whatif_objects import CONFIGURATION_KINDS, Sluice, cluster_queue

RUN = """
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata:
  name: build
  namespace: team-tenant
  labels: {pipelinesascode.tekton.dev/event-type: push}
spec:
  pipelineRef: {name: docker-build}
  params:
    - {name: build-platforms, value: [linux/arm64]}
"""


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "services.ctl.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


HEAVY = {"aiohttp", "faststream", "kubernetes_asyncio", "opentelemetry", "pydantic", "rich"}
"""Each costs a tenth of a second or more to import: a command that only looks does without."""

HEAVIER = HEAVY | {"asyncio", "nats"}
"""`--help` must be there before a user notices."""

NOBODY = ("--nats-url", "nats://127.0.0.1:9")
LOOKS = [("get", "workloads"), ("history", "a/b"), ("explain", "a/b"), ("top", "--once")]

IMPORTED = """
import contextlib, io, sys
from services.ctl.main import main
with (
    contextlib.redirect_stdout(io.StringIO()),
    contextlib.redirect_stderr(io.StringIO()),
    contextlib.suppress(SystemExit),
):
    main()
print(*sys.modules)
"""


@cache
def imported_modules(command: tuple[str, ...]) -> list[str]:
    """Every module that Python has loaded when the command ends."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *command],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    return done.stdout.split()


def imported_packages(command: tuple[str, ...]) -> set[str]:
    return {name.partition(".")[0] for name in imported_modules(command)}


@pytest.mark.parametrize(
    "command",
    [(), *((name,) for name in {entry.module: name for name, entry in ENTRIES.items()}.values())],
)
def test_help_imports_no_slow_package(command: tuple[str, ...]) -> None:
    assert HEAVIER & imported_packages((*command, "--help")) == set()


@pytest.mark.parametrize("command", [("completion", "bash"), *((*look, *NOBODY) for look in LOOKS)])
def test_read_only_command_imports_no_slow_package(command: tuple[str, ...]) -> None:
    assert HEAVY & imported_packages(command) == set()


@pytest.mark.parametrize(
    "command",
    [("dead", "list", *NOBODY), ("dead", "show", "1", *NOBODY), ("hosts", *NOBODY)],
)
def test_command_that_checks_messages_imports_no_library_of_services(
    command: tuple[str, ...],
) -> None:
    assert ({*HEAVY, "structlog"} - {"pydantic"}) & imported_packages(command) == set()


def test_command_that_writes_imports_no_library_of_services(tmp_path: Path) -> None:
    """Besides the HTTP client, which it needs: `structlog` alone takes a tenth of a second, with `rich`."""
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(NO_SERVER)
    imported = imported_packages(("stop", "cq", "cq", "--kubeconfig", str(kubeconfig)))
    assert "aiohttp" in imported
    assert ({*HEAVY, "structlog"} - {"aiohttp"}) & imported == set()


def test_plan_for_queues_imports_no_library_of_services(file: Any) -> None:
    """Only new jobs need the kinds of jobs, CEL, and the webhook with its metrics and traces."""
    state = file("state/q.yaml", *CONFIGURATION_KINDS, cluster_queue(4)).parent
    change = file("more.yaml", cluster_queue(8))
    imported = imported_packages(("plan", "--state", str(state), "-f", str(change)))
    assert "pydantic" in imported
    heavy = {*HEAVY, "structlog", "prometheus_client", "google", "cel_expr_python"} - {"pydantic"}
    assert heavy & imported == set()


@pytest.mark.parametrize(
    ("command", "modules_max"),
    [
        (("--help",), 260),
        (("get", "--help"), 260),
        (("completion", "bash"), 330),
        (("get", "wl", *NOBODY), 360),
    ],
)
def test_help_completion_and_get_import_few_modules(
    command: tuple[str, ...], modules_max: int
) -> None:
    """Start-up time is the number of modules; `python -m services.ctl.bench.startup` measures it."""
    assert len(imported_modules(command)) <= modules_max


def test_the_help_lists_commands_and_exit_statuses() -> None:
    text = process("--help").stdout
    for command in ("run", "dev", "demo", "bus", "history", "mutate", "simulate-world", "version"):
        assert f"  {command} " in text
    for status in ("0 done", "1 the answer is no", "2 wrong option", "3 NATS", "130 interrupted"):
        assert status in " ".join(text.split())


def test_the_list_of_commands_is_what_is_defined() -> None:
    modules = {entry.module for entry in ENTRIES.values()}
    defined = {
        info.name or info.callback.__name__ if name not in ENTRIES else name
        for name in modules
        for info in import_module(f"services.ctl.cli.{name}").app.registered_commands
    }
    assert sorted(ENTRIES) == sorted(defined)
    commands = typer.main.get_group(app).commands
    assert [commands[name].name for name in ENTRIES] == list(ENTRIES)


@pytest.mark.parametrize(
    "group", [(), *((name,) for name, each in ENTRIES.items() if each.module == name)]
)
def test_lists_of_commands_cut_no_sentence_off(sluice: Sluice, group: tuple[str, ...]) -> None:
    assert "..." not in sluice(*group, "--help")[1].replace("[ARGS]...", "")


def test_a_command_imports_the_options_of_no_other() -> None:
    ours = "services.ctl.cli."
    loaded = {name for name in imported_modules(("spokes", "--help")) if name.startswith(ours)}
    assert loaded == {f"{ours}{name}" for name in ("commands", "completers", "options", "spokes")}


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        pytest.param(
            ("history", "no-slash"),
            Exit.WRONG_INPUT,
            "sluice: 'no-slash': must be NAMESPACE/NAME",
            id="a name without a namespace",
        ),
        pytest.param(
            ("history", "a/b", "--nats-url", "nats://127.0.0.1:9"),
            Exit.UNREACHABLE,
            "sluice: NATS at nats://127.0.0.1:9: ",
            id="nobody listens there",
        ),
        pytest.param(
            ("bus", "apply", "--nats-url", "nats://127.0.0.1:9"),
            Exit.UNREACHABLE,
            "`sluice dev` starts one",
            id="streams for nobody",
        ),
        pytest.param(
            ("run", "quota", "--port", "1"),
            Exit.WRONG_INPUT,
            "quota takes no arguments",
            id="a service takes its settings from the environment",
        ),
        pytest.param(
            ("demo", "--pipelineruns", "missing.yaml"),
            Exit.WRONG_INPUT,
            "sluice: missing.yaml: there is no such file or folder",
            id="a file that is not there, before anything is started",
        ),
        pytest.param(
            ("dev", "--manifests", "missing"),
            Exit.WRONG_INPUT,
            "sluice: missing: there is no such file or folder",
            id="manifests that are not there, before anything is started",
        ),
        pytest.param(
            ("simulate-world", "--scenario", "none"),
            Exit.WRONG_INPUT,
            "--scenario none: there is none of this name",
            id="an unknown scenario",
        ),
    ],
)
def test_expected_failure_prints_a_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sluice: Sluice,
    arguments: tuple[str, ...],
    status: Exit,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ended, _, told = sluice(*arguments)
    assert said in told
    assert ended == status


def test_expected_failure_of_a_process_has_no_traceback() -> None:
    done = process("history", "no-slash")
    assert "sluice: 'no-slash': must be NAMESPACE/NAME" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == Exit.WRONG_INPUT


def test_ctrl_c_while_the_command_is_imported_ends_it_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    done = python("from services.ctl.entry import main; main()", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (Exit.INTERRUPTED, "", "")


ENTERED = "import services.ctl.entry, os; os.kill(os.getpid(), 2); print('goes on')"


@pytest.mark.parametrize(
    ("before", "status", "printed"),
    [
        pytest.param("", Exit.INTERRUPTED, "", id="nobody has begun anything: it ends at once"),
        pytest.param(
            "import _signal; _signal.signal(2, _signal.SIG_IGN);",
            Exit.OK,
            "goes on\n",
            id="whoever started it ignores Ctrl-C",
        ),
    ],
)
def test_ctrl_c_before_the_command_runs_ends_it_without_a_traceback(
    before: str, status: Exit, printed: str
) -> None:
    done = python(before + ENTERED)
    assert (done.returncode, done.stdout, done.stderr) == (status, printed, "")


def test_entry_loads_no_module_before_it_meets_ctrl_c() -> None:
    done = python(
        "import sys; old = {*sys.modules}; import services.ctl.entry; print(*{*sys.modules} - old)"
    )
    ours = {"services", "services.ctl", "services.ctl.entry"}
    assert {*done.stdout.split()} - {"gc"} == ours


def test_the_command_begins_where_ctrl_c_is_met() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"sluice": "services.ctl.entry:main"}


@pytest.fixture
def set_only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """These variables, and nothing else of the environment."""

    def set_variables(**variables: str) -> None:
        for name in os.environ:
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_variables


def test_invalid_setting_is_named_by_its_environment_variable(
    sluice: Sluice, set_only: Callable[..., None]
) -> None:
    set_only(SLUICE_HEALTH_PORT="seventy")
    status, _, told = sluice("run", "watcher")
    assert status == Exit.WRONG_INPUT
    assert "sluice: setting SLUICE_HEALTH_PORT: " in told
    assert "got 'seventy'" in told


def test_conflicting_settings_are_reported_without_the_others(
    sluice: Sluice, set_only: Callable[..., None]
) -> None:
    set_only(SLUICE_REDISPATCH="afterLease", SLUICE_WORKER_LOST_TIMEOUT_SECONDS="60")
    status, _, told = sluice("run", "dispatcher")
    assert status == Exit.WRONG_INPUT
    assert told.startswith("sluice: settings: ")
    assert "SLUICE_WORKER_LOST_TIMEOUT_SECONDS: 60 leaves leases of -240 s" in told
    assert "got" not in told


def test_unusable_kueue_configuration_is_reported_with_its_field(
    tmp_path: Path, sluice: Sluice, set_only: Callable[..., None]
) -> None:
    path = tmp_path / "configuration.yaml"
    path.write_text("multiKueue: {gcInterval: -1m}\n")
    set_only(SLUICE_CONFIGURATION=str(path))
    status, _, told = sluice("run", "dispatcher")
    assert status == Exit.WRONG_INPUT
    assert told.startswith(f"sluice: {path}: multiKueue.gcInterval: ")


def test_mutate_prints_what_the_webhook_would_make(tmp_path: Path, sluice: Sluice) -> None:
    (tmp_path / "run.yaml").write_text(RUN)
    arguments = ("--pipelinerun-file", str(tmp_path / "run.yaml"))
    status, printed, _ = sluice("mutate", *arguments, "--config-dir", EXAMPLE / "classifier")
    assert status == Exit.OK
    for line in (
        "kueue.x-k8s.io/priority-class: konflux-post-merge-build",
        "kueue.x-k8s.io/queue-name: pipelines-queue",
        "kueue.konflux-ci.dev/requests-linux-arm64: '1'",
        "status: PipelineRunPending",
    ):
        assert line in printed


def test_mutate_reports_a_refusal_with_its_code(tmp_path: Path, sluice: Sluice) -> None:
    (tmp_path / "run.yaml").write_text(RUN.replace("[linux/arm64]", "['']"))
    arguments = ("--pipelinerun-file", str(tmp_path / "run.yaml"))
    status, _, told = sluice("mutate", *arguments, "--config-dir", EXAMPLE / "classifier")
    assert status == Exit.FAILED
    assert "refused with 500: CEL evaluation failed" in told


def test_the_version_is_the_distributions(sluice: Sluice) -> None:
    assert sluice("version")[1].startswith("sluice 0.")


def test_every_program_that_can_be_named_is_listed(sluice: Sluice) -> None:
    _, listed, _ = sluice("run", "--help")
    for program in Program:
        assert program.value in listed
    assert "Usage: sluice run [OPTIONS] {PROGRAM}\n" in listed


def helps(command: Any, path: str) -> Iterator[tuple[str, str]]:
    """Command and option, with the option's help text."""
    for each in command.params:
        yield f"{path} {each.name}", getattr(each, "help", None) or ""
    for name, below in getattr(command, "commands", {}).items():
        yield from helps(below, f"{path} {name}")


def test_help_of_an_option_is_understood_without_its_name() -> None:
    texts = dict(helps(get_command(app), "sluice"))
    assert len(texts) > 100
    assert [where for where, text in texts.items() if text.startswith(("Of ", "Only of "))] == []
    assert [where for where, text in texts.items() if text.startswith("Only this one")] == []
    assert [where for where, text in texts.items() if not text] == []


@pytest.mark.parametrize("command", ["stop", "resume"])
def test_namespace_of_a_command_that_writes_is_that_of_its_object(command: str) -> None:
    assert dict(helps(get_command(app), "sluice"))[f"sluice {command} namespace"] == (
        "Namespace of the LocalQueue or workload."
    )
