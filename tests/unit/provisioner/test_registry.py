"""Provider types of the provisioner and of other packages."""

from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import EntryPoint

import pytest

from services.provisioner.config.credentials import Secrets
from services.provisioner.config.host_config import DynamicPlatform, parse_host_config
from services.provisioner.config.provider_types import GROUP, RULES
from services.provisioner.providers.fake import FakeCloud, FakeProvider
from services.provisioner.providers.registry import (
    ProviderKind,
    Registry,
    UnknownProviderError,
    installed_kinds,
    shipped_kinds,
)
from tests.unit.provisioner.harness import HOST_CONFIG

opened: list[Mapping[str, str]] = []


def open_one(account: Mapping[str, str], secrets: Secrets) -> FakeProvider:
    del secrets
    opened.append(account)
    return FakeProvider(FakeCloud(now=lambda: datetime.now(UTC)))


MINE = ProviderKind(open=open_one, ssh_user="me")
NOT_MINE = "something else"


def entry(name: str, attribute: str) -> EntryPoint:
    return EntryPoint(name=name, value=f"{__name__}:{attribute}", group=GROUP)


def test_entry_point_adds_type_and_broken_one_is_skipped() -> None:
    kinds = installed_kinds(
        (entry("mine", "MINE"), entry("wrong", "NOT_MINE"), entry("gone", "NOWHERE"))
    )
    assert kinds == {"mine": MINE}
    registry = Registry({}, kinds=kinds)
    config = parse_host_config(
        {**HOST_CONFIG, "dynamic.linux-arm64.type": "mine", "dynamic.linux-arm64.ssh-secret": "s"},
        available=registry.types,
    )
    assert isinstance(config.platforms["linux/arm64"], DynamicPlatform)
    assert registry.ssh_user("mine") == "me"


def test_every_shipped_type_loads_with_rules_of_its_table() -> None:
    assert {name: kind.rules for name, kind in shipped_kinds().items()} == RULES


def test_account_is_opened_once_and_found_by_recorded_name() -> None:
    opened.clear()
    registry = Registry({}, kinds={"mine": MINE})
    data = {
        **HOST_CONFIG,
        "dynamic.linux-arm64.type": "mine",
        "dynamic.linux-arm64.ssh-secret": "s",
        "dynamic.linux-arm64.crn": "crn:v1:a/b?c&d=e",
        "dynamic.linux-arm64.region": "north 1",
    }
    platform = parse_host_config(data, available=registry.types).platforms["linux/arm64"]
    assert isinstance(platform, DynamicPlatform)
    account = platform.machines.account

    assert registry.get(account) is registry.get(account)
    assert opened == [{"crn": "crn:v1:a/b?c&d=e", "region": "north 1"}]
    assert [name for name, _ in registry.all()] == [account]


def test_recorded_type_that_is_not_installed_is_reported() -> None:
    with pytest.raises(UnknownProviderError, match="no provider 'mine' here; there are: other"):
        Registry({}, kinds={"other": MINE}).get("mine?region=a")
