"""Whom the provisioner's log lines are about: each carries the workload, and the number of its trace."""

from typing import Final

from tests.unit.provisioner.test_reservations import RUN, QuotaHarness, task_run_of_run

TRACE: Final = "ab" * 16
TRACEPARENT: Final = f"00-{TRACE}-{'cd' * 8}-01"
CARRIED: Final = {f"workload={f'team-a/{RUN}'!r}", f"trace={TRACE!r}"}
EVENTS: Final = (
    "info: an admission check has another state",
    "info: a machine was ordered",
    "info: a slot of a host was released",
)


def test_lines_about_machines_slots_and_checks_carry_the_workload_and_its_trace() -> None:
    with QuotaHarness() as harness:

        async def scenario() -> None:
            usage = {"linux-arm64": "1"}
            await harness.publish_admission("reserved", usage, traceparent=TRACEPARENT)
            await harness.wait_for_check("Ready")
            await harness.publish_admission("admitted", usage, traceparent=TRACEPARENT)
            build = task_run_of_run("build")
            build["metadata"]["annotations"] = {"sluicegate.dev/traceparent": TRACEPARENT}
            await harness.observe_build(build)
            await harness.wait_for("build", "ready")
            await harness.finish_task_run(build)
            await harness.wait_for("build", "released")

        harness.run_with_check(scenario)

        for event in EVENTS:
            lines = [line for line in harness.world.log if event in line]
            assert lines
            for line in lines:
                assert set(line.partition(event)[2].split()) >= CARRIED, line
