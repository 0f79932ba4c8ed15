"""A document with a path that its kind's schema does not have is refused once it is applied."""

from tests.conformance.seeds.stage import Stage, story
from tests.simulation.kinds.test_integrations import DEFINITIONS, INTEGRATIONS, active, integration
from tests.unit.integrations.definitions import GADGETS


@story()
async def test_path_that_the_schema_does_not_have_takes_a_document_out_of_force(
    stage: Stage,
) -> None:
    await stage.kube.create(DEFINITIONS, GADGETS)
    document = await stage.kube.create(INTEGRATIONS, integration())
    await stage.settle(40)
    document = await stage.kube.get(INTEGRATIONS, None, "gadgets.example.com")
    good = document["spec"]
    assert active(document)["status"] == "True"
    wrong = [{"template": "spec.tmplate", "count": "spec.replicas"}]
    await stage.patch(document, {"spec": {"podSets": wrong}})
    await stage.settle(40)
    document = await stage.kube.get(INTEGRATIONS, None, "gadgets.example.com")
    said = active(document)
    assert (said["status"], said["reason"]) == ("False", "SchemaMismatch")
    assert "spec.podSets[0].template: the schema has no spec.tmplate" in said["message"]
    assert document["status"]["accepted"] == good
