"""The streams as data, and making JetStream so."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import nats
import pytest
import yaml
from nats.aio.client import Client

from shared.bus.admin.apply import apply
from shared.bus.admin.asyncapi import all_messages, pattern_of
from shared.bus.filters import covers
from shared.bus.nats.jetstream_api import call
from shared.bus.nats.publisher import RETRY_SECONDS
from shared.bus.nats.stream_drift import check
from shared.bus.streams import STREAMS_FILE, Catalogue, CatalogueError, load, newer_format
from shared.contracts.messages.base import COMMITTED
from shared.contracts.subjects import SORT_OF, STREAM_OF, SUBJECT_BYTES_MAX, Stream, subject_filter
from shared.testing.nats_server import nats_server
from shared.testing.waiting import PATIENCE_SECONDS


def test_each_log_of_the_catalogue_has_its_name_in_contracts() -> None:
    assert list(load().logs) == list(Stream)


def test_each_subject_of_the_catalogue_has_its_log_in_contracts() -> None:
    subjects = {name: set(log.subjects) for name, log in load().logs.items()}

    assert subjects == {
        stream: {subject_filter(sort) for sort, log in STREAM_OF.items() if log == stream}
        for stream in Stream
    }
    assert all(STREAM_OF[sort] == stream for stream, sort in SORT_OF.items())


def test_shipped_catalogue_has_the_documented_streams() -> None:
    configs = load().configs()

    logs = ["OBSERVED", "WORKLOADS", "ADMISSIONS", "CHECKS", "DISPATCHES", "HOSTS", "OUTCOMES"]
    logs += ["QUEUES", "KEYS", "SPOKES", "TRACES"]
    assert set(configs) == {
        *logs,
        *(f"{log}_NOW" for log in logs),
        *("DEAD", "DEAD_NOW", "LEASES", "OBJ_objects"),
    }
    refusing = {name for name, config in configs.items() if config["discard"] == "new"}
    assert refusing == {"WORKLOADS", "ADMISSIONS", "OBJ_objects"}
    for log in logs:
        view = configs[f"{log}_NOW"]
        assert view["sources"] == [{"name": log}]
        assert (view["max_msgs_per_subject"], view["discard"], view["max_age"]) == (1, "old", 0)
        assert configs[log]["retention"] == "limits"
        assert configs[log]["max_bytes"] > 0
        assert configs[log]["duplicate_window"] > RETRY_SECONDS * 1e9
    assert configs["ADMISSIONS"]["subjects"] == ["sluice.admission.>", "sluice.term.>"]
    assert SUBJECT_BYTES_MAX < 4000


@pytest.mark.parametrize(
    ("metadata", "newer"),
    [
        pytest.param(None, "", id="a stream without metadata is committed to nothing"),
        pytest.param({COMMITTED: "6"}, "", id="an older format is known"),
        pytest.param({COMMITTED: "7"}, "", id="the own format is known"),
        pytest.param({COMMITTED: "8"}, "8", id="a higher one is newer"),
        pytest.param({COMMITTED: "10"}, "10", id="formats are compared as numbers"),
        pytest.param(
            {COMMITTED: "v1"}, "v1", id="only a newer release gives another text a meaning"
        ),
    ],
)
def test_format_to_which_a_stream_is_committed_is_compared_with_the_own(
    metadata: dict[str, str] | None, newer: str
) -> None:
    config = {} if metadata is None else {"metadata": metadata}
    assert newer_format(config, 7) == newer


def test_every_message_type_has_a_log() -> None:
    logs = load().logs
    messages = all_messages()

    assert len(messages) >= 9
    for message in messages:
        assert any(covers(one, pattern_of(message)) for one in logs[message.stream].subjects)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        pytest.param({"logs": {}}, "logs", id="no logs"),
        pytest.param({"surprise": 1}, "surprise", id="an unknown field"),
        pytest.param(
            {"defaults": {"max_age_days": 1, "max_gib": "many", "discard": "old"}},
            "defaults.max_gib",
            id="a size that is no number",
        ),
        pytest.param(
            {"logs": {"X": {"description": "d", "subjects": ["x"], "discard": "young"}}},
            "logs.X.discard",
            id="an unknown policy",
        ),
    ],
)
def test_bad_catalogue_is_refused_with_file_field_and_value(
    tmp_path: Path, change: dict[str, Any], complaint: str
) -> None:
    path = tmp_path / "streams.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(STREAMS_FILE.read_text()) | change))

    with pytest.raises(CatalogueError, match=complaint) as caught:
        load(path)

    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["{", "- a", "", "\t"])
def test_file_without_a_catalogue_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "streams.yaml"
    path.write_text(text)

    with pytest.raises(CatalogueError):
        load(path)
    with pytest.raises(CatalogueError):
        load(tmp_path / "missing.yaml")


@pytest.fixture
async def nc() -> AsyncIterator[Client]:
    async with nats_server(streams=False) as server:
        client = await nats.connect(server.url)
        yield client
        await client.close()


async def test_applying_twice_changes_nothing(nc: Client) -> None:
    first = await apply(nc)
    assert {change.action for change in first.changes} == {"created"}
    assert await check(nc) == []

    second = await apply(nc)
    assert {change.action for change in second.changes} == {"unchanged"}
    assert second.ok
    assert "WORKLOADS: unchanged" in str(second)


async def test_changeable_settings_are_updated(nc: Client) -> None:
    await apply(nc)
    data = yaml.safe_load(STREAMS_FILE.read_text())
    data["logs"]["DEAD"]["max_age_days"] = 7
    catalogue = Catalogue.model_validate(data)

    assert any("DEAD" in problem for problem in await check(nc, catalogue=catalogue))
    report = await apply(nc, catalogue=catalogue)

    changed = [change for change in report.changes if change.action != "unchanged"]
    assert [(change.stream, change.action) for change in changed] == [("DEAD", "updated")]
    assert "max_age" in changed[0].detail
    assert await check(nc, catalogue=catalogue) == []


async def test_settings_added_by_an_operator_are_kept(nc: Client) -> None:
    await apply(nc)
    ask = partial(call, nc, timeout_seconds=PATIENCE_SECONDS)
    info = (await ask("STREAM.INFO.DEAD"))["config"]
    await ask("STREAM.UPDATE.DEAD", info | {"compression": "s2", "max_age": 0})

    await apply(nc)

    config = (await ask("STREAM.INFO.DEAD"))["config"]
    assert config["compression"] == "s2"
    assert config["max_age"] > 0


async def test_missing_stream_is_reported_with_advice(nc: Client) -> None:
    await apply(nc)
    await nc.jsm().delete_stream("HOSTS")

    assert await check(nc) == ["stream HOSTS is missing: run `sluice bus apply`"]


async def test_view_is_rebuilt_only_on_request(nc: Client) -> None:
    await apply(nc)
    js = nc.jetstream(timeout=PATIENCE_SECONDS)
    for body in (b"1", b"2"):
        await js.publish("sluice.host.a", body)
    await js.publish("sluice.host.b", b"3")
    await nc.jsm().delete_stream("HOSTS_NOW")

    refused = await apply(nc)
    assert not refused.ok
    assert "HOSTS_NOW: refused (the view is gone; `--rebuild HOSTS_NOW`" in str(refused)

    rebuilt = await apply(nc, rebuild=["HOSTS_NOW"])
    assert rebuilt.ok
    assert "HOSTS_NOW: rebuilt" in str(rebuilt)
    await js.publish("sluice.host.c", b"4")
    subscription = await js.pull_subscribe("sluice.host.>", stream="HOSTS_NOW")
    messages = [(await subscription.fetch(1, timeout=60))[0] for _ in range(3)]
    assert [message.data for message in messages] == [b"2", b"3", b"4"]


async def test_log_is_never_rebuilt(nc: Client) -> None:
    await apply(nc)

    report = await apply(nc, rebuild=["HOSTS"])

    assert "HOSTS: refused (only views can be rebuilt)" in str(report)


async def test_view_ahead_of_its_log_is_reported(nc: Client) -> None:
    """A power cut may cost the log its last second, and the view not."""
    await apply(nc)
    js = nc.jetstream(timeout=PATIENCE_SECONDS)
    for number in range(5):
        await js.publish("sluice.host.a", str(number).encode())
    while (await nc.jsm().stream_info("HOSTS_NOW")).state.last_seq < 5:
        pass
    await nc.jsm().delete_stream("HOSTS")
    await apply(nc)

    problems = await check(nc)

    assert len(problems) == 1
    assert problems[0].startswith("view HOSTS_NOW has sequence 5 of HOSTS, which ends at 0")
