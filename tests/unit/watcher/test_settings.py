"""Settings of what is watched."""

import pytest
from pydantic import ValidationError

from services.watcher.scopes import stages
from services.watcher.settings import WatcherSettings
from shared.contracts.kube.kinds import (
    CONFIGURATION_KINDS,
    INTEGRATION,
    JOB,
    NODE,
    WORKLOAD,
)


def test_default_watches_all_kinds_but_nodes_in_all_namespaces() -> None:
    settings = WatcherSettings()
    first, second, rest = stages(settings.kinds, settings.namespaces)
    assert tuple(scope.kind for scope in first) == (INTEGRATION, *CONFIGURATION_KINDS)
    assert [scope.kind for scope in second] == [WORKLOAD]
    assert JOB in [scope.kind for scope in rest]
    assert NODE not in [scope.kind for scope in rest]
    assert {scope.namespace for scope in (*first, *second, *rest)} == {None}


def test_names_in_environment_are_separated_by_commas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLUICE_KINDS", "jobs.batch, nodes")
    monkeypatch.setenv("SLUICE_NAMESPACES", "team-a,team-b")
    settings = WatcherSettings()
    (scopes,) = stages(settings.kinds, settings.namespaces)
    assert [str(scope) for scope in scopes] == [
        "jobs.batch in team-a",
        "jobs.batch in team-b",
        "nodes",
    ]


def test_unknown_kind_is_refused_with_list_of_known_ones() -> None:
    with pytest.raises(ValidationError, match=r"'pods' is not watched; there are .*jobs\.batch"):
        WatcherSettings(kinds=("pods",))


def test_secrets_cannot_be_watched() -> None:
    with pytest.raises(ValidationError, match="'secrets' is not watched"):
        WatcherSettings(kinds=("secrets",))
