"""The whole service in virtual time: admissions and observations in, orders and check states out."""

from tests.unit.dispatcher.stage import Stage, job


def test_the_first_spoke_where_the_copy_has_quota_wins_and_the_others_are_withdrawn() -> None:
    with Stage() as stage:

        async def drive() -> None:
            train = job()
            await stage.submit(train)
            await stage.decide(train, "reserved")
            pending = await stage.until_check("Pending")
            assert pending.message == "The workload waits for one of: east, west"
            east = await stage.until_dispatch("east", "offered")
            west = await stage.until_dispatch("west", "offered")
            assert east.job is not None
            assert east.job["metadata"]["labels"] == {
                "kueue.x-k8s.io/queue-name": "main",
                "kueue.x-k8s.io/prebuilt-workload-name": "job-train",
                "kueue.x-k8s.io/multikueue-origin": "multikueue",
            }
            await stage.show_copy("east", east)
            await stage.show_copy("west", west)
            await stage.show_quota("west", west)
            ready = await stage.until_check("Ready")
            assert (ready.message, ready.spoke) == ('The workload was admitted on "west"', "west")
            await stage.until_dispatch("west", "chosen")
            withdrawn = await stage.until_dispatch("east", "withdrawn")
            assert withdrawn.job is not None
            assert "spec" not in withdrawn.job
            assert withdrawn.job["metadata"]["name"] == "train"

        stage.play(drive)
