"""What travels beside a body."""

import base64
from datetime import UTC, datetime, timedelta, timezone
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client

from shared.bus import headers as wire
from shared.bus.direct_read import parse_block, source_sequence
from shared.bus.port import TooLargeError
from tests.contract.bus.stage import AT, workload


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_id_and_source_become_one_line_of_ascii_and_come_back(
    identity: str, source: str
) -> None:
    built = wire.build(workload(), message_id=identity, source=source, now=AT)

    for value in built.values():
        assert value.isascii()
        assert value.isprintable()
        assert " " not in value
    assert unquote(built["ce-id"]) == identity
    assert unquote(built["ce-source"]) == source
    assert built["Nats-Msg-Id"] == built["ce-id"]


def test_plain_values_stay_readable() -> None:
    built = wire.build(workload(), message_id="admission:3:17", source="quota-0", now=AT)

    assert built["ce-id"] == "admission:3:17"
    assert built["ce-time"] == "2026-01-02T03:04:05+00:00"
    assert "traceparent" not in built


@pytest.mark.parametrize("trace", ["", "x" * 100_000, "00-" + "1" * 40_000 + "-2-01"])
def test_trace_context_that_is_none_is_no_header(trace: str) -> None:
    message = workload().replace(traceparent=trace)
    assert "traceparent" not in wire.build(message, message_id="m", source="s", now=AT)


@pytest.mark.parametrize(
    ("subject", "data", "headers", "complaint"),
    [
        ("s" * 4000, b"", {}, "subject"),
        ("ünï" * 1000, b"", {}, "subject"),
        ("s", b"x" * 1000, {}, "body has 1000 bytes"),
        ("s", b"x" * 900, {"name": "v" * 200}, "body"),
        ("s", b"", {"name": "v" * 20_000}, "headers"),
    ],
)
def test_header_that_closes_the_connection_is_refused(
    subject: str, data: bytes, headers: dict[str, str], complaint: str
) -> None:
    with pytest.raises(TooLargeError, match=complaint):
        wire.check_size(subject, data, headers, max_payload=1000)


def test_sequence_of_the_log_is_the_second_word_of_the_source() -> None:
    source = {"Nats-Stream-Source": "WORKLOADS 4711 > > sluice.workload.a.b.c"}

    assert source_sequence(source) == 4711
    assert source_sequence({}) is None
    for forged in ("", "x", "x y z", "x -1"):
        assert source_sequence({"Nats-Stream-Source": forged}) is None


STORED = datetime(2027, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        pytest.param({"ce-time": AT.isoformat()}, STORED, id="a log's own time"),
        pytest.param(
            {"Nats-Stream-Source": "X 1", "ce-time": AT.isoformat()},
            AT,
            id="in a view the publisher's, which a rebuild does not change",
        ),
        pytest.param(
            {"Nats-Stream-Source": "X 1", "ce-time": "2026-01-02T04:04:05+01:00"},
            AT.astimezone(timezone(timedelta(hours=1))),
            id="with its zone",
        ),
        pytest.param(
            {"Nats-Stream-Source": "X 1", "ce-time": "yesterday"}, STORED, id="unless it is none"
        ),
        pytest.param({"Nats-Stream-Source": "X 1"}, STORED, id="or is not there"),
        *(
            pytest.param({"Nats-Stream-Source": "X 1", "ce-time": time}, STORED, id=f"or is {time}")
            for time in (
                *(
                    "9999-12-31T23:59:59.999999",
                    "9999-12-31T23:59:59-14:00",
                    "2027-01-01T00:00:01Z",
                ),
                *("0001-01-01T00:00:00", "0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59Z"),
            )
        ),
    ],
)
def test_entry_time_is_the_time_of_storage(headers: dict[str, str], expected: datetime) -> None:
    assert wire.taken_at(headers, STORED) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(b"", {}, id="none"),
        pytest.param(b"\r\n", {}, id="an empty line"),
        pytest.param(b"a: 1\r\nB: two words\r\n\r\n", {"a": "1", "B": "two words"}, id="two"),
        pytest.param(b"a:1\r\nb:\t2 \r\n", {"a": "1", "b": "2"}, id="blanks are optional"),
        pytest.param(b"a: x:y\r\n", {"a": "x:y"}, id="a colon in a value"),
        pytest.param(b"a:\r\n", {"a": ""}, id="an empty value"),
        pytest.param(b"no colon\r\na: 1\r\n", {"a": "1"}, id="no header at all"),
        pytest.param(b"a b: 1\r\nc: 2\r\n", {"c": "2"}, id="a blank in a name"),
        pytest.param(b"\xc3\xa4: 1\r\nc: \xc3\xa4\r\n", {"c": "ä"}, id="a name of umlauts"),
        pytest.param(b"a: \xff\r\n", {"a": "\ufffd"}, id="bytes that are no text"),
        pytest.param(b"a: 1\r\na: 2\r\n", {"a": "2"}, id="twice: the last"),
    ],
)
def test_headers_are_parsed_as_by_nats_py(raw: bytes, expected: dict[str, str]) -> None:
    assert parse_block(raw) == expected
    assert Client._parse_header_lines(raw) == expected


def test_headers_of_a_stored_message_may_hold_any_bytes() -> None:
    block = base64.b64encode(b"NATS/1.0\r\nce-id: \xff\xfe\r\nNats-Msg-Id: known\r\n\r\n").decode()
    assert wire.stored_headers({"hdrs": block})["Nats-Msg-Id"] == "known"
    assert wire.log_sequence({"hdrs": block, "seq": 7}) == 7
    assert wire.stored_headers({}) == {}
