import socket

import pytest

from shared.settings.ports import LOOPBACK, reserve_port


def listening(port: int) -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind((LOOPBACK, port))
    found.listen()
    return found


def test_reserved_port_can_be_listened_at_in_each_life_of_a_child() -> None:
    port = reserve_port()
    for _ in range(2):
        with listening(port), socket.create_connection((LOOPBACK, port), timeout=60):
            pass


def test_reserved_port_is_in_use_for_other_binders() -> None:
    port = reserve_port()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((LOOPBACK, port))


def test_port_in_use_is_refused_with_its_address() -> None:
    with listening(0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"{LOOPBACK}:{port}"):
            reserve_port(port)
