"""What is generated for clusters, and the manifests that people already have."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from services.classifier.conversion.convert import convert
from services.classifier.validation import validate
from services.classifier.validation.table import RULES, KindRules
from services.ctl.setup.apply import apply_manifest
from services.ctl.setup.crds import FOLDER, files
from services.ctl.setup.webhook import VALIDATED
from services.simulator.app import Simulator
from services.whatif.manifests import load_documents, to_manifest
from shared.contracts.kube.kinds import Object
from shared.contracts.kueue.definitions import DEFINITIONS, STORAGE, V1BETA1, Definition, crd
from shared.kube.client import HttpKube

ROOT: Final = Path(__file__).parents[2]
SEEDS: Final = ROOT / "deploy" / "examples" / "seeds"
MANIFESTS: Final = [
    (f"{path.stem}-{index}", document)
    for path in sorted(SEEDS.glob("*.yaml"))
    for index, (_, document) in enumerate(load_documents(path))
]
KUBECTL: Final = shutil.which("kubectl")
KINDS: Final = {definition.kind.kind: definition for definition in DEFINITIONS}


# Generated -----------------------------------------------------------------------------------------


def test_crd_files_equal_those_generated_from_the_models() -> None:
    written = {
        str(path.relative_to(FOLDER)): path.read_text() for path in sorted(FOLDER.rglob("*.yaml"))
    }
    assert written == files(), "run `python -m services.ctl.setup.crds`"


def schemas() -> Iterator[tuple[str, Object]]:
    for definition in DEFINITIONS:
        for webhook in (True, False):
            for version in crd(definition, webhook=webhook)["spec"]["versions"]:
                name = f"{definition.kind.kind}.{version['name']}.{webhook}"
                yield name, version["schema"]["openAPIV3Schema"]


SCHEMAS: Final = dict(schemas())


def nodes(path: str, schema: Object) -> Iterator[tuple[str, Object]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(f"{path}.{name}", child)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(f"{path}.{key}", schema[key])


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_schema_is_structural(schema: Object) -> None:
    for path, node in nodes("", schema):
        typed = "type" in node or "x-kubernetes-int-or-string" in node
        assert typed, f"{path} has no type"
        assert not {"$ref", "title", "const", "nullable", "oneOf", "allOf"} & node.keys(), path
        assert "anyOf" not in node or "x-kubernetes-int-or-string" in node, path
        assert not {"properties", "additionalProperties"} <= node.keys(), path
        assert set(node.get("required", ())) <= node.get("properties", {}).keys(), path
        if node.get("x-kubernetes-list-type") == "map":
            for key in node["x-kubernetes-list-map-keys"]:
                item = node["items"]
                assert key in item.get("required", ()) or "default" in item["properties"][key], path


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS)
def test_every_crd_field_has_a_description(schema: Object) -> None:
    for path, node in nodes("", schema):
        for name, child in node.get("properties", {}).items():
            if name != "metadata":
                assert child.get("description", "").endswith("."), f"{path}.{name}"


KUEUE: Final = {
    "Workload": (
        ["kwl", "kueueworkload", "kueueworkloads"],
        ["Queue", "Reserved in", "Admitted", "Finished", "Age"],
    ),
    "LocalQueue": (
        ["queue", "queues", "lq"],
        ["ClusterQueue", "Pending Workloads", "Admitted Workloads"],
    ),
    "ClusterQueue": (["cq"], ["Cohort", "Strategy", "Pending Workloads", "Admitted Workloads"]),
    "WorkloadPriorityClass": (["wpc"], ["Value"]),
    "MultiKueueCluster": (["mkc"], ["Connected", "Age"]),
}
"""Short names and printer columns of Kueue's definitions: kubernetes-sigs/kueue@ff69552
config/components/crd/bases."""


@pytest.mark.parametrize("kind", KUEUE)
def test_short_names_and_columns_equal_those_of_kueue(kind: str) -> None:
    made = crd(KINDS[kind], webhook=True)["spec"]
    short_names, columns = KUEUE[kind]
    assert made["names"]["shortNames"] == short_names
    for version in made["versions"]:
        assert [column["name"] for column in version["additionalPrinterColumns"]] == columns


@pytest.mark.parametrize("definition", DEFINITIONS, ids=list(KINDS))
def test_both_versions_are_served_and_the_newer_is_stored(definition: Definition) -> None:
    for webhook in (True, False):
        spec = crd(definition, webhook=webhook)["spec"]
        stored = {version["name"]: version["storage"] for version in spec["versions"]}
        assert stored == {STORAGE: True, V1BETA1: False}
        assert all(version["served"] for version in spec["versions"])
    converting = crd(definition, webhook=True)["spec"]["conversion"]["webhook"]
    assert converting["clientConfig"]["service"] == {
        "name": "classifier",
        "namespace": "sluicegate",
        "path": "/convert",
    }


def test_without_a_webhook_fields_that_differ_in_v1beta1_are_refused() -> None:
    (_, older) = crd(KINDS["ClusterQueue"], webhook=False)["spec"]["versions"]
    spec = older["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert {"cohort", "cohortName", "admissionChecks"} <= spec["properties"].keys()
    rules = {rule["rule"]: rule["message"] for rule in spec["x-kubernetes-validations"]}
    assert rules["!has(self.cohort)"] == (
        "cohort cannot be converted without a webhook; write v1beta2's cohortName"
    )


def test_shipped_configuration_validates_the_same_kinds_as_sluice_dev() -> None:
    text = (ROOT / "deploy" / "kubernetes" / "base" / "webhook" / "classifier.yaml").read_text()
    (configuration,) = (
        document
        for document in yaml.safe_load_all(text)
        if document["kind"] == "ValidatingWebhookConfiguration"
    )
    shipped = {
        (group, resource)
        for hook in configuration["webhooks"]
        for rule in hook["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    expected = {(kind.group, kind.plural) for kind in VALIDATED}
    assert shipped - {("kueue.x-k8s.io", "workloads/status")} == expected


def test_api_server_asks_about_each_kind_that_has_rules() -> None:
    ruled = {kind for kind, rules in RULES.items() if rules != KindRules()}
    assert ruled == {(kind.group, kind.kind) for kind in VALIDATED}


# The seeds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("document", [d for _, d in MANIFESTS], ids=[n for n, _ in MANIFESTS])
def test_seed_objects_pass_all_validation_rules(document: Object) -> None:
    newest = document
    if document["apiVersion"].startswith("kueue.x-k8s.io/"):
        newest = convert(document, "kueue.x-k8s.io/v1beta2")
        KINDS[document["kind"]].model_of(V1BETA1).model_validate(
            convert(newest, "kueue.x-k8s.io/v1beta1")
        )
    assert [str(problem) for problem in validate(newest, None)] == []


@pytest.mark.parametrize("path", sorted(SEEDS.rglob("*.yaml")), ids=lambda path: path.stem)
def test_file_of_a_seed_names_its_source(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert first.startswith(("# Seed 00", "# Of no seed:")), first


@pytest.fixture
async def simulator() -> AsyncIterator[Simulator]:
    running = Simulator(behaviour=False)
    await running.start()
    yield running
    await running.stop()


async def kubectl(simulator: Simulator, folder: Path, *arguments: str) -> str:
    assert KUBECTL is not None
    config = folder / "kubeconfig"
    config.write_text(simulator.kubeconfig())
    process = await asyncio.create_subprocess_exec(
        KUBECTL,
        f"--kubeconfig={config}",
        f"--cache-dir={folder / 'cache'}",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def applied(simulator: Simulator, folder: Path) -> None:
    if KUBECTL is not None:
        await kubectl(simulator, folder, "apply", "-f", str(SEEDS))
        return
    async with closing(HttpKube.at(simulator.url)) as kube:
        for name, document in MANIFESTS:
            await apply_manifest(kube, to_manifest(name, document))


async def test_all_seeds_apply_and_are_read_in_both_versions(
    simulator: Simulator, tmp_path: Path
) -> None:
    await applied(simulator, tmp_path)
    async with closing(HttpKube.at(simulator.url)) as kube:
        for name, document in MANIFESTS:
            kind = to_manifest(name, document).kind
            ours = kind.group == "kueue.x-k8s.io"
            metadata = document["metadata"]
            for version in (V1BETA1, STORAGE) if ours else (kind.version,):
                as_read = replace(kind, version=version)
                found = await kube.get(as_read, metadata.get("namespace"), metadata["name"])
                wanted = convert(document, as_read.api_version) if ours else document
                assert contains(found, {**wanted, "metadata": metadata}), name


@asynccontextmanager
async def closing(kube: HttpKube) -> AsyncIterator[HttpKube]:
    try:
        yield kube
    finally:
        await kube.close()


def contains(found: Any, wanted: Any) -> bool:
    """Whether all that was written is there; more may be."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            contains(found.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(contains, found, wanted))
    return bool(found == wanted)


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on the PATH")
async def test_kubectl_prints_seeds_in_the_columns_of_kueue(
    simulator: Simulator, tmp_path: Path
) -> None:
    await applied(simulator, tmp_path)
    shown = await kubectl(simulator, tmp_path, "get", "cq,lq,workloads", "--all-namespaces")
    for column in ("COHORT", "PENDING WORKLOADS", "CLUSTERQUEUE", "RESERVED IN"):
        assert column in shown
    assert "clusterqueue.kueue.x-k8s.io/team-a" in shown
