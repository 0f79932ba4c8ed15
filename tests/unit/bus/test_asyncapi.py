"""The page that says what a service reads and writes."""

import yaml

from shared.bus.admin.asyncapi import asyncapi, messages_of, template_of, to_yaml
from shared.bus.nats.work.worker import Registration
from shared.bus.port import Entry
from shared.contracts.messages.admissions import Admission, Term
from shared.contracts.messages.observed import Observed
from shared.contracts.messages.outcomes import DeadLetter, Outcome
from shared.contracts.messages.workloads import WorkloadState


async def handle(_entry: Entry) -> None:
    """Carry a decision out in the cluster."""


REGISTRATION = Registration(
    stream="ADMISSIONS", durable="patcher-hub", handler=handle, filters=("sluice.admission.hub.>",)
)


def test_page_lists_read_and_written_messages() -> None:
    page = asyncapi(
        "patcher",
        [REGISTRATION],
        watches=[("WORKLOADS", ())],
        publishes=[Outcome],
    )

    assert page["info"]["title"] == "patcher"
    assert {name: one["action"] for name, one in page["operations"].items()} == {
        "ADMISSIONS_NOW:patcher-hub": "receive",
        "WORKLOADS_NOW:watch": "receive",
        "OUTCOMES:Outcome": "send",
    }
    channels = page["channels"]
    assert channels["ADMISSIONS_NOW:patcher-hub"]["address"] == "sluice.admission.hub.>"
    assert channels["ADMISSIONS_NOW:patcher-hub"]["description"] == handle.__doc__
    assert channels["OUTCOMES:Outcome"]["address"] == (
        "sluice.outcome.{cluster}.{namespace}.{name}"
    )
    schemas = page["components"]["schemas"]
    assert {"Admission", "WorkloadState", "Outcome"} <= set(schemas)
    assert "traceparent" not in schemas["Outcome"]["properties"], "it travels as a header"


def test_page_is_deterministic_and_valid_yaml() -> None:
    pages = [to_yaml(asyncapi("patcher", [REGISTRATION])) for _ in range(2)]

    assert pages[0] == pages[1]
    assert yaml.safe_load(pages[0]) == asyncapi("patcher", [REGISTRATION])


def test_log_carries_the_messages_of_the_contracts() -> None:
    assert messages_of("ADMISSIONS") == [Admission, Term]
    assert messages_of("ADMISSIONS", ("sluice.admission.hub.>",)) == [Admission]
    assert messages_of("ADMISSIONS", ("sluice.term.*",)) == [Term]
    assert messages_of("WORKLOADS") == [WorkloadState]
    assert messages_of("DEAD", ("sluice.dead.patcher.>",)) == [DeadLetter]
    assert Observed in messages_of("OBSERVED", ("sluice.observed.*.*.*.jobs_batch",))


def test_subjects_come_from_the_contracts() -> None:
    assert template_of(WorkloadState) == "sluice.workload.<cluster>.<namespace>.<name>"
