"""The whole service in virtual time: messages in, machines and messages out."""

from tests.unit.provisioner.stage import Stage, task_run


def test_a_dynamic_platform_gets_a_machine_for_the_task_run_and_gives_it_back() -> None:
    with Stage() as stage:

        async def drive() -> None:
            build = task_run("build")
            await stage.run_task(build)
            launching = await stage.until("build", "launching")
            ready = await stage.until("build", "ready")
            assert ready.host == launching.host
            assert ready.secret == {
                "host": f"u-b4de4c6dcae1e1499596fd77b398@{ready.address}",
                "user-dir": "/home/u-b4de4c6dcae1e1499596fd77b398",
            }
            assert stage.alive() == [ready.host]
            await stage.finish(build)
            released = await stage.until("build", "released")
            assert released.secret is None
            assert stage.alive() == [], "it is said only when the machine is gone"
            record = await stage.record("linux/arm64")
            assert record is not None
            assert (record.seats, record.machines, record.attempts) == ([], [], {})

        stage.play(drive)
