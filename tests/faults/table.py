"""All faults."""

from typing import Final

from tests.faults import injuries
from tests.faults.fault import Fault
from tests.faults.site import API_SERVER, CLOCKED, PROCESSES

ONE, THREE = 1, 3
IN_A_ROW: Final = 10
"""How often processes are killed and paused in one fault: twenty of them make 200 times, and four 40, as in CI."""

MOST_WORK: Final = ("quota", "classifier", "watcher", "patcher")
"""Services through which every workload goes: they are killed and paused more often."""


def faults() -> tuple[Fault, ...]:
    """The table."""
    rows = (
        _process_faults() + _faults_of_one_server() + _faults_of_three_servers() + _clock_faults()
    )
    assert len({row.name for row in rows}) == len(rows), "a fault is in the table twice"
    return tuple(rows)


def _process_faults() -> list[Fault]:
    rows: list[Fault] = []
    for name in PROCESSES:
        often = 4 if name in MOST_WORK else 2
        rows += [
            Fault(
                name=f"{name} is killed", servers=ONE, make=injuries.killed(name), times=often,
            ),
            Fault(
                name=f"{name} is paused for some seconds", servers=ONE, times=often,
                make=injuries.paused(name, 1, 8),
            ),
        ]  # fmt: skip
    rows += [
        Fault(
            name=f"{name} is paused for up to a minute", servers=ONE, times=2, quick=False,
            make=injuries.paused(name, 20, 60),
        )
        for name in MOST_WORK
    ]  # fmt: skip
    for name in MOST_WORK:
        rows += [
            Fault(
                name=f"{name} gets too little memory", servers=ONE, times=2, make=injuries.out_of_memory(name, 1, 12),
            ),
            Fault(
                name=f"{name} gets no more descriptors", servers=ONE, times=2,
                make=injuries.out_of_descriptors(name, 1, 12),
            ),
        ]  # fmt: skip
    rows.append(
        Fault(
            name=f"{IN_A_ROW} times a process is killed or paused", servers=ONE, times=20, jobs=40, quick=False,
            make=injuries.killed_or_paused((*PROCESSES, API_SERVER), IN_A_ROW),
        )
    )  # fmt: skip
    return rows


def _faults_of_one_server() -> list[Fault]:
    return [
        Fault(name="the API server is killed", servers=ONE, times=4, make=injuries.killed(API_SERVER)),
        Fault(name="the API server is paused", servers=ONE, times=3, make=injuries.paused(API_SERVER, 1, 8)),
        Fault(name="API server and patcher are killed at once", servers=ONE, times=3, make=injuries.killed_together(API_SERVER, "patcher")),
        Fault(name="quota and classifier are killed at once", servers=ONE, times=3, make=injuries.killed_together("quota", "classifier")),
        Fault(name="every service is killed at once", servers=ONE, times=2, make=injuries.killed_together(*PROCESSES)),
        Fault(name="NATS is killed", servers=ONE, times=5, make=injuries.server_killed(0)),
        Fault(name="NATS is paused", servers=ONE, times=3, make=injuries.server_paused(0, 1, 8)),
        Fault(name="NATS comes back with an empty disk", servers=ONE, times=3, make=injuries.disk_emptied),
        Fault(name="NATS comes back with an older disk", servers=ONE, times=4, make=injuries.disk_set_back),
        Fault(name="the disk of NATS is full", servers=ONE, times=2, make=injuries.disk_filled),
        Fault(name="the log of decisions is full", servers=ONE, times=3, make=injuries.log_filled("ADMISSIONS")),
        Fault(name="the log of workloads is full", servers=ONE, times=2, make=injuries.log_filled("WORKLOADS")),
        Fault(name="answers of NATS are lost", servers=ONE, times=5, make=injuries.cut("answers", 1, 6)),
        Fault(name="the network to NATS is cut", servers=ONE, times=4, make=injuries.cut("everything", 1, 15)),
    ]  # fmt: skip


def _faults_of_three_servers() -> list[Fault]:
    rows = [
        Fault(name=f"server {number} of three is killed", servers=THREE, times=2, make=injuries.server_killed(number))
        for number in range(THREE)
    ]  # fmt: skip
    rows += [
        Fault(name=f"server {number} of three is paused", servers=THREE, times=2, make=injuries.server_paused(number, 1, 8))
        for number in range(THREE)
    ]  # fmt: skip
    rows += [
        Fault(name="the server that leads the log of decisions is killed", servers=THREE, times=4, make=injuries.leader_killed("ADMISSIONS")),
        Fault(name="the server that leads the log of workloads is killed", servers=THREE, times=2, make=injuries.leader_killed("WORKLOADS")),
        Fault(name="the server that leads the leases is killed", servers=THREE, times=2, make=injuries.leader_killed("LEASES")),
        Fault(name="all three servers are killed", servers=THREE, times=2, make=injuries.all_servers_killed),
        Fault(name="one of three servers comes back with an empty disk", servers=THREE, times=2, make=injuries.disk_emptied),
        Fault(name="answers of all three servers are lost", servers=THREE, times=3, make=injuries.cut("answers", 1, 6)),
        Fault(name="the network to all three servers is cut", servers=THREE, times=2, make=injuries.cut("everything", 1, 15)),
        Fault(name="answers of the server that leads the log of decisions are lost", servers=THREE, times=3, make=injuries.leader_cut_off("ADMISSIONS", "answers", 1, 12)),
        Fault(name="the network to the server that leads the log of decisions is cut", servers=THREE, times=3, make=injuries.leader_cut_off("ADMISSIONS", "everything", 1, 15)),
        Fault(name="quota is killed on three servers", servers=THREE, times=3, make=injuries.killed("quota")),
        Fault(name="quota is paused on three servers", servers=THREE, times=3, make=injuries.paused("quota", 1, 12)),
    ]  # fmt: skip
    return rows


def _clock_faults() -> list[Fault]:
    rows: list[Fault] = []
    for name in CLOCKED:
        rows += [
            Fault(
                name=f"the clock of {name} is off by up to ten minutes, then right again", servers=ONE, times=2,
                clocks=True, make=injuries.clock_off(name, 1, 12),
            ),
            Fault(
                name=f"the clock of {name} is off by up to ten minutes from now on", servers=ONE, times=2,
                clocks=True, make=injuries.clock_stays_off(name),
            ),
            Fault(
                name=f"the clock of {name} is off by up to ten minutes, and it is killed", servers=ONE, times=2,
                clocks=True, make=injuries.killed_with_clock_off(name),
            ),
        ]  # fmt: skip
    rows.append(
        Fault(
            name="the clock of NATS is off",
            servers=ONE,
            make=injuries.server_clock_off,
            quick=False,
            clocks=True,
        )
    )
    return rows
