"""A folder of manifests, and the command in this process."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.ctl.main import main
from tests.unit.ctl.whatif_objects import Sluice


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, *objects: dict[str, Any]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump_all(objects))
        return path

    return write


@pytest.fixture
def sluice(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Sluice:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["sluice", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return run


@pytest.fixture
def sluice_integration(sluice: Sluice) -> Sluice:
    """`sluice integration`."""
    return partial(sluice, "integration")
