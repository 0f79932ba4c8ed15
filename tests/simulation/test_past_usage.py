"""What LocalQueues used lately is known after a restart of quota: it is in their status."""

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.stage import Stage, job, pool, story

CONFIGURATION = {"admissionFairSharing": {"usageHalfLifeTime": "1h", "usageSamplingInterval": "1m"}}
SCOPE = {"admissionMode": "UsageBasedAdmissionFairSharing"}
DOWN_SECONDS = 20.0


async def used(stage: Stage, namespace: str) -> Object:
    queue = await stage.kube.get(kinds.LOCAL_QUEUE, namespace, "q")
    sharing = (queue.get("status") or {}).get("fairSharing") or {}
    found: Object = sharing.get("admissionFairSharingStatus") or {}
    return found


@story(configuration=CONFIGURATION)
async def test_queue_with_high_recent_usage_goes_last_also_after_a_restart(stage: Stage) -> None:
    namespaces = ("team-a", "team-b")
    await stage.create(*pool("q", {"cpu": 2}, namespaces=namespaces, admissionScope=SCOPE))
    greedy = await stage.create(job("greedy", "q", {"cpu": 2}, seconds=900))
    await stage.until_admitted(greedy)
    await stage.until_finished(greedy, seconds=2000)
    before = await used(stage, "team-a")
    assert before["consumedResources"]["cpu"].endswith("m"), "a part of two CPUs"

    stage.system.world.crash("quota-1", down_seconds=DOWN_SECONDS)
    first = await stage.create(job("first", "q", {"cpu": 2}))
    second = await stage.create(job("second", "q", {"cpu": 2}, namespace="team-b"))
    await stage.until_admitted(second, seconds=DOWN_SECONDS + 60)
    assert not await stage.is_admitted(first), "it came first, and its team had its turn"
    after = await used(stage, "team-a")
    assert int(after["consumedResources"]["cpu"].rstrip("m")) > 0, "nothing is forgotten at once"
