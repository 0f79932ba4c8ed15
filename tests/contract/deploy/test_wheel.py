"""The wheel: what `pipx install .` installs for a user, without anything that only development needs."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[3]
UV = Path(sys.executable).parent / "uv"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as a user builds it, with what `make setup` has fetched already."""
    folder = tmp_path_factory.mktemp("wheel")
    command = (UV, "build", "--wheel", "--quiet", "--out-dir", folder, ROOT)
    built_at_once = subprocess.run((*command, "--offline"), check=False, cwd=folder)
    if built_at_once.returncode and subprocess.run(command, check=False, cwd=folder).returncode:
        pytest.skip("uv has no build backend in its cache, and cannot fetch one")
    [built] = folder.glob("*.whl")
    return built


def test_wheel_has_every_file_that_the_programs_look_up(wheel: Path) -> None:
    folders = ("services", "shared", "deploy/nats", "deploy/examples")
    files = (file for folder in folders for file in (ROOT / folder).rglob("*") if file.is_file())
    looked_up = {str(file.relative_to(ROOT)) for file in files if file.suffix != ".pyc"}
    assert looked_up - set(ZipFile(wheel).namelist()) == set()


def test_command_runs_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    ZipFile(wheel).extractall(tmp_path / "installed")
    for arguments in (("version",), ("bus", "permissions", "--keys", "keys")):
        done = subprocess.run(
            (sys.executable, "-m", "services.ctl.main", *arguments),
            env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
            check=False, cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder that `uv tool install` made of the wheel, with the locked versions of what it needs."""
    folder, locked = tmp_path / "tools", tmp_path / "locked.txt"
    export = ("export", "--locked", "--quiet", "--no-dev", "--no-hashes", "--no-emit-project")
    subprocess.run((UV, *export, "--output-file", locked), check=True, cwd=ROOT)
    command = (UV, "tool", "install", "--quiet", "--python", sys.executable)
    constrained = (*command, "--constraints", locked, wheel)
    places = {"UV_TOOL_DIR": str(folder), "UV_TOOL_BIN_DIR": str(folder / "bin")}
    environment = {**os.environ, **places}
    for ways in (("--offline",), ()):
        done = subprocess.run((*constrained, *ways), env=environment, check=False, cwd=tmp_path)
        if done.returncode == 0:
            break
    else:
        pytest.skip("uv lacks packages in its cache, and cannot fetch them")
    yield folder
    shutil.rmtree(folder)  # It is large, and pytest keeps folders of three runs.


def test_installed_tool_runs_and_brings_nothing_for_development(
    installed: Path, tmp_path: Path
) -> None:
    for arguments in (("version",), ("bus", "permissions", "--keys", "keys"), ("demo", "--help")):
        done = subprocess.run(
            (installed / "bin" / "sluice", *arguments),
            env={"PATH": os.defpath}, check=False, cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
    brought = {path.name for path in installed.glob("sluicegate/lib/*/site-packages/*")}
    assert {"faststream", "nats"} <= brought
    assert not {"pytest", "mkdocs", "moto", "mypy", "ruff", "tests"} & brought
