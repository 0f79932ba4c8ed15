"""The wheel: what `pipx install .` installs for a user, without anything that only development needs."""

import os
import subprocess
import sys
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
