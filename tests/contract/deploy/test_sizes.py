"""What the streams may grow to fits into what the server may store, and that onto its volume."""

import re
from pathlib import Path
from typing import Final

import pytest

from shared.bus.streams import DATA, load
from tests.contract.deploy.rendering import KUBERNETES, kustomized

UNITS: Final = {"GB": 10**9, "Gi": 1 << 30}
SERVERS: Final = (
    DATA / "server.conf",
    KUBERNETES / "components" / "encryption" / "encryption.conf",
)


def bytes_of(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)(GB|Gi)", text).groups()  # type: ignore[union-attr]
    return int(number) * UNITS[unit]


@pytest.mark.parametrize("path", SERVERS, ids=lambda path: path.name)
def test_all_streams_full_fit_into_what_the_server_may_store(path: Path) -> None:
    [stored] = re.findall(r"max_file_store: (\S+)", path.read_text())
    assert sum(one["max_bytes"] for one in load().configs().values()) <= bytes_of(stored)


def test_every_stream_and_view_is_bounded_in_bytes() -> None:
    assert [name for name, one in load().configs().items() if one["max_bytes"] <= 0] == []


def test_what_the_server_may_store_fits_onto_its_volume() -> None:
    [stored] = re.findall(r"max_file_store: (\S+)", SERVERS[0].read_text())
    [server] = [one for one in kustomized("hub") if one["kind"] == "StatefulSet"]
    [claim] = server["spec"]["volumeClaimTemplates"]
    assert bytes_of(stored) <= bytes_of(claim["spec"]["resources"]["requests"]["storage"])
