"""The durable consumers that `sluice bus apply` makes are those that services register."""

from typing import cast

from services.quota.dead_letters import register_retries
from services.reference.write import Recorder, pages
from shared.bus.admin.permissions import durables_of
from shared.bus.filters import covers
from shared.bus.port import Bus
from shared.bus.streams import load, view_of
from tests.unit.quota.service_setup import NOON


def test_declared_durables_are_those_that_services_register() -> None:
    recorder = Recorder()
    register_retries(bus=cast("Bus", recorder), now=lambda: NOON, try_again=lambda: None)
    works = [*recorder.registrations, *(one for page in pages() for one in page.works)]
    registered = {one.durable: (view_of(one.stream), one.filters) for one in works}
    assert durables_of("hub") == registered


def test_durables_of_a_hub_select_what_their_logs_have() -> None:
    logs = load().logs
    for name, (view, filters) in durables_of("main").items():
        [subjects] = [log.subjects for one, log in logs.items() if view_of(one) == view]
        assert "hub" not in name.split("-")[1:2], name
        for wanted in filters:
            assert any(covers(one, wanted) for one in subjects), (name, wanted)
