"""What `sluice dev` refuses before anything starts."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.ctl.main import app
from shared.runtime.command import CommandError
from shared.settings.access import VARIABLES


def test_a_ca_for_nats_is_refused_where_our_own_server_speaks_no_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The services would inherit it, and wait for ever for a server with TLS."""
    authority = tmp_path / "ca.crt"
    authority.write_text("any")
    monkeypatch.setenv(VARIABLES["ca"], str(authority))
    directory = tmp_path / "state"
    result = CliRunner().invoke(app, ["dev", "--directory", str(directory)])
    assert isinstance(result.exception, CommandError)
    assert str(result.exception) == (
        "SLUICE_NATS_CA: is set, and the NATS that `sluice dev` starts speaks no TLS"
    )
    assert result.exception.hint == "unset it, or use --secure"
    assert not directory.exists()
