"""Worlds of machines end well, and what is left behind in one is found."""

import pytest

from services.provisioner.checks.reservations import Reservations
from services.provisioner.hosts import access
from services.provisioner.hosts.fake import FakeHosts
from services.provisioner.hosts.port import HostTarget
from services.simulator.mutants.deciding import without
from services.simulator.scenarios.machines.scenario import play
from shared.bus.order.fences import Fences
from shared.contracts.messages.admissions import Admission
from tests.simulation.mistakes import finds

SEEDS = (2, 124, 160, 398)


@pytest.mark.parametrize("seed", SEEDS)
def test_scenario_leaves_nothing_behind_and_exceeds_no_limit(seed: int) -> None:
    assert play(seed).problems == []


def test_judge_finds_user_left_on_host(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(self: FakeHosts, target: HostTarget) -> None:
        del self, target

    monkeypatch.setattr(FakeHosts, "clean", forget)
    assert finds(play, "users on hosts", 2)


def test_judge_finds_more_users_on_host_than_it_has_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Fences, "headers", without("HOSTS")(Fences.headers))
    assert finds(play, " users on power-", 20)


def test_judge_finds_unsealed_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(content: bytes, **_: object) -> str:
        return content.decode()

    monkeypatch.setattr(access, "seal", plain)
    assert finds(play, "a private key can be read in HOSTS", 160)


def test_judge_finds_slot_reserved_for_finished_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apply_admission = Reservations.apply_admission

    def ignore_release(self: Reservations, admission: Admission) -> set[str]:
        return set() if admission.state == "released" else apply_admission(self, admission)

    monkeypatch.setattr(Reservations, "apply_admission", ignore_release)
    assert finds(play, "places on record", 4)
