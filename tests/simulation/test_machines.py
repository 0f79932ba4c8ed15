"""Worlds of machines end well, and what is left behind in one is found."""

import pytest

from services.provisioner.checks.reservations import Reservations
from services.provisioner.hosts import access
from services.provisioner.hosts.fake import FakeHosts
from services.provisioner.hosts.port import HostTarget
from services.simulator.scenarios.machines.scenario import play
from shared.contracts.messages.admissions import Admission

SEEDS = (2, 124, 160, 398)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_left_behind_and_no_limit_is_exceeded(seed: int) -> None:
    assert play(seed).problems == []


def test_a_user_that_stays_on_a_host_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(self: FakeHosts, target: HostTarget) -> None:
        del self, target

    monkeypatch.setattr(FakeHosts, "clean", forget)
    assert any("users on hosts" in problem for problem in play(2).problems)


def test_a_key_that_is_not_sealed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(content: bytes, **_: object) -> str:
        return content.decode()

    monkeypatch.setattr(access, "seal", plain)
    assert any("a private key can be read in HOSTS" in problem for problem in play(160).problems)


def test_a_place_that_stays_kept_for_a_run_that_is_over_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apply_admission = Reservations.apply_admission

    def ignore_release(self: Reservations, admission: Admission) -> set[str]:
        return set() if admission.state == "released" else apply_admission(self, admission)

    monkeypatch.setattr(Reservations, "apply_admission", ignore_release)
    problems = play(4).problems
    assert any("places on record" in problem for problem in problems)
