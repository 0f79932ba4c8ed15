"""Ledgers survive the bus: what is recorded is what is read."""

from dataclasses import replace

from services.provisioner.allocation.ledger import AllocationLedger, HostAccess
from services.provisioner.allocation.results import Placed
from services.provisioner.wire import to_host_state, to_ledger, to_platform_state, to_released
from shared.contracts.messages.hosts import PlatformState
from tests.unit.provisioner.builders import NOON, ledger, machine, request, slot


def full_ledger() -> AllocationLedger:
    """A ledger in which no field has its default."""
    access = HostAccess(
        user="admin", port=2222, secret="ssh", host_keys=("a", "b"), sudo_commands="podman"
    )
    return replace(
        ledger(
            slots=[
                replace(slot("a", "m"), access=access, state="preparing", sealed="box"),
                slot("b", "power-1"),
            ],
            machines=[machine("m", holder="a", shared=True)],
            attempts={"uid-a": 2},
            refusals={"uid-c": "no"},
        ),
        failed_hosts={"uid-a": {"x": "no answer", "y": ""}},
        returned={"uid-d": "team-a:run"},
    )


def test_ledger_is_unchanged_after_encoding_and_decoding() -> None:
    recorded = to_platform_state(full_ledger(), now=NOON)
    assert to_ledger(PlatformState.decode(recorded.encode())) == full_ledger()


def test_released_state_keeps_all_but_secrets_and_message() -> None:
    placed = Placed(host="m", address="10.0.0.1", sealed="box")
    state = to_host_state(request("a"), placed, cluster="hub", provider="fake", now=NOON)
    released = to_released(state, returned=True, now=NOON)
    assert (released.state, released.secret, released.sealed) == ("released", None, None)
    same = released.model_dump(exclude={"state", "secret", "sealed"})
    assert same == state.model_dump(exclude={"state", "secret", "sealed"})


def test_released_state_of_a_host_beyond_the_quota_gives_nothing_back() -> None:
    own = replace(request("a"), workload="run")
    placed = Placed(host="m", address="10.0.0.1")
    state = to_host_state(own, placed, cluster="hub", provider="fake", now=NOON)
    slots = [to_released(state, returned=each, now=NOON).slots for each in (True, False)]
    assert slots == [{"linux-arm64": "1"}, {}]
