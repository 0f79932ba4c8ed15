"""Settings from variables and from Kueue's Configuration."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from services.dispatcher.planning.nomination import NominationStrategy
from services.dispatcher.settings import DispatcherSettings
from shared.settings.configuration import Configuration, MultiKueue, read_configuration

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "spokes.md"


def section(**values: object) -> MultiKueue:
    return Configuration.model_validate({"multiKueue": values}).multi_kueue


def test_configuration_document_of_how_to_is_applied(tmp_path: Path) -> None:
    (block,) = [b for b in PAGE.read_text().split("```") if "kind: Configuration" in b]
    path = tmp_path / "configuration.yaml"
    path.write_text(block.removeprefix("yaml"))

    settings = DispatcherSettings().with_configuration(read_configuration(path).multi_kueue)

    assert NominationStrategy.from_name(settings.dispatcher) is NominationStrategy.INCREMENTAL
    assert settings.incremental_step_size == 2
    assert settings.multikueue_origin == "multikueue"
    assert settings.worker_lost_timeout_seconds == 600
    assert settings.collect_orphans


def test_empty_section_changes_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_MULTIKUEUE_ORIGIN", "here")
    settings = DispatcherSettings()

    assert settings.with_configuration(Configuration().multi_kueue) == settings


def test_variable_overrides_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_DISPATCHER", "all-at-once")
    settings = DispatcherSettings().with_configuration(
        section(dispatcherName="example.com/mine", origin="me")
    )

    assert (settings.dispatcher, settings.multikueue_origin) == ("all-at-once", "me")


def test_lost_timeout_is_at_least_silent_seconds() -> None:
    settings = DispatcherSettings().with_configuration(section(workerLostTimeout="0s"))

    assert settings.worker_lost_timeout_seconds == settings.silent_seconds


def test_gc_interval_zero_disables_orphan_collection() -> None:
    assert not DispatcherSettings().with_configuration(section(gcInterval="0s")).collect_orphans


def test_lease_shorter_than_silent_seconds_is_refused() -> None:
    settings = DispatcherSettings(redispatch="afterLease")

    with pytest.raises(ValidationError, match="leaves leases of -240 s"):
        settings.with_configuration(section(workerLostTimeout="1m"))
    with pytest.raises(ValidationError, match="for SLUICE_SILENT_SECONDS"):
        DispatcherSettings(redispatch="afterLease", worker_lost_timeout_seconds=320)
