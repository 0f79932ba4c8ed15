"""Document 000: PipelineRuns wait for slots of one queue."""

from tests.conformance.seeds.says import says
from tests.conformance.seeds.stage import Stage, pipeline_run, pool, story

SLOT = "tekton.dev/pipelineruns"
QUEUE = "pipelines-queue"


@says("000:9-11", "000:62")
@story()
async def test_only_a_controlled_number_of_pipeline_runs_is_active_and_the_next_waits_for_a_slot(
    stage: Stage,
) -> None:
    await stage.create(*pool("cluster-pipeline-queue", {SLOT: 2}, local=QUEUE))
    runs = [await stage.create(pipeline_run(f"run-{n}", seconds=60)) for n in range(1, 4)]

    await stage.until_admitted(*runs[:2])
    await stage.until_waits(runs[2], SLOT)
    assert [await stage.runs(run) for run in runs] == [True, True, False]

    await stage.until_finished(*runs[:2])
    await stage.until_admitted(runs[2])
