"""Our definitions on a real API server: taken, explained, converted, and in force."""

import asyncio
import base64
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from services.classifier.cel import CelEngine
from services.classifier.conversion.convert import KEPT, convert
from services.classifier.rules.holder import RulesHolder
from services.classifier.webhook.app import webhook_app
from services.ctl.setup.apply import apply_manifest
from services.ctl.setup.webhook import validating_manifest
from services.whatif.manifests import load_manifests
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind, Object
from shared.contracts.kueue.definitions import DEFINITIONS, STORAGE, V1BETA1, crd
from shared.contracts.webhook import CONVERT_PATH, VALIDATE_PATH
from shared.kube.client import HttpKube
from shared.kube.port import RefusedError
from shared.runtime.certificates import CertificateFolder
from shared.runtime.web import WebServer
from shared.settings.ports import reserve_port
from shared.testing.waiting import eventually
from tests.contract.kubernetes.clusters import some_cluster
from tests.contract.kubernetes.definitions import CUSTOM_RESOURCE_DEFINITION
from tests.contract.test_crds import contains

pytestmark = pytest.mark.cluster

SEEDS: Final = Path(__file__).parents[3] / "deploy" / "examples" / "seeds"
KUBECTL: Final = shutil.which("kubectl")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """An API server with our definitions, and the classifier that it asks."""

    kube: HttpKube
    kubeconfig: Path

    async def kubectl(self, *arguments: str) -> str:
        if KUBECTL is None:
            pytest.skip("kubectl is not on the PATH")
        process = await asyncio.create_subprocess_exec(
            KUBECTL,
            f"--kubeconfig={self.kubeconfig}",
            f"--cache-dir={self.kubeconfig.parent / 'cache'}",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode()


@dataclass(kw_only=True)
class Server:
    """An API server, and where the classifier of each test is to be found."""

    variant: str
    kubeconfig: Path
    certificates: Path
    port: int
    installed: bool = False


@pytest.fixture(scope="module", params=["converting", "plain"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Its own: elsewhere the kinds are defined otherwise."""
    folder = tmp_path_factory.mktemp("crds")
    with some_cluster(folder) as running:
        port = reserve_port()
        yield Server(
            variant=request.param,
            kubeconfig=running.kubeconfig,
            certificates=folder / "certificates",
            port=port,
        )


@asynccontextmanager
async def classifier(server: Server) -> AsyncIterator[tuple[str, bytes]]:
    """URL and CA of a webhook on this machine."""
    certificates = CertificateFolder(server.certificates, ["127.0.0.1"])
    webhook = WebServer(
        webhook_app(RulesHolder(CelEngine())),
        host="127.0.0.1",
        port=server.port,
        certificates=certificates,
        now=lambda: datetime.now(UTC),
    )
    port = await webhook.start()
    try:
        yield f"https://127.0.0.1:{port}", certificates.ca_bundle()
    finally:
        await webhook.stop()


def here(definition: Object, url: str, authority: bytes) -> Object:
    """The definition with the classifier on this machine in place of the Service."""
    conversion = definition["spec"]["conversion"]
    if conversion["strategy"] == "None":
        return definition
    bundle = base64.b64encode(authority).decode()
    client = {"url": f"{url}{CONVERT_PATH}", "caBundle": bundle}
    webhook = {**conversion["webhook"], "clientConfig": client}
    spec = {**definition["spec"], "conversion": {"strategy": "Webhook", "webhook": webhook}}
    return {**definition, "spec": spec}


@pytest.fixture
async def cluster(server: Server) -> AsyncIterator[Cluster]:
    kube = HttpKube.from_kubeconfig(str(server.kubeconfig))
    async with classifier(server) as (url, authority):
        if not server.installed:
            await install(kube, server, url, authority)
        yield Cluster(kube=kube, kubeconfig=server.kubeconfig)
    await kube.close()


async def install(kube: HttpKube, server: Server, url: str, authority: bytes) -> None:
    for definition in DEFINITIONS:
        made = here(crd(definition, webhook=server.variant == "converting"), url, authority)
        await kube.create(CUSTOM_RESOURCE_DEFINITION, made)
    wanted = {("kueue.x-k8s.io", v, d.kind.plural) for d in DEFINITIONS for v in VERSIONS}

    async def served() -> bool:
        return wanted <= await kube.served()

    await eventually(served)
    manifest = validating_manifest(url=f"{url}{VALIDATE_PATH}", authority=authority)
    await apply_manifest(kube, manifest)
    server.installed = True


VERSIONS: Final = (STORAGE, V1BETA1)


def named(obj: Object) -> str:
    return str(obj["metadata"]["name"])


@pytest.fixture
def converting(server: Server) -> None:
    if server.variant != "converting":
        pytest.skip("only where the classifier converts")


@pytest.fixture
def plain(server: Server) -> None:
    if server.variant != "plain":
        pytest.skip("only where nobody converts")


def v1(kind: Kind) -> Kind:
    return replace(kind, version=V1BETA1)


def quota(name: str, **spec: Any) -> Object:
    """A ClusterQueue of one flavor."""
    resources = [{"name": "cpu", "nominalQuota": 4}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "a", "resources": resources}]}
    return {
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"resourceGroups": [group], **spec},
    }


async def test_every_definition_is_established_and_structural(cluster: Cluster) -> None:
    for one in (await cluster.kube.list(CUSTOM_RESOURCE_DEFINITION)).items:
        conditions = {c["type"]: c["status"] for c in one["status"]["conditions"]}
        assert conditions["Established"] == "True"
        assert conditions.get("NonStructuralSchema", "False") == "False"


@pytest.mark.parametrize(
    "field",
    [
        "clusterqueue.spec.preemption",
        "cohort.spec.parentName",
        "kueueworkload.spec.podSets",
        "lq.status",
        "rf.spec.nodeTaints",
        "topo.spec.levels",
        "wpc.value",
        "mkc.spec.clusterSource",
        "mkconf.spec",
        "prc.spec.retryStrategy",
        "ac.spec",
    ],
)
async def test_kubectl_explains_every_field(cluster: Cluster, field: str) -> None:
    said = await cluster.kubectl("explain", field)
    assert "<empty>" not in said
    assert "DESCRIPTION" in said


async def test_seeds_apply_and_are_read_in_both_versions(cluster: Cluster, server: Server) -> None:
    await cluster.kubectl("apply", "-f", str(SEEDS))
    for manifest in load_manifests([SEEDS]):
        metadata = manifest.object["metadata"]
        ours = manifest.kind.group == "kueue.x-k8s.io"
        for version in VERSIONS if ours else (manifest.kind.version,):
            kind = replace(manifest.kind, version=version)
            got = await cluster.kube.get(kind, metadata.get("namespace"), metadata["name"])
            wanted: dict[str, Any] = {**manifest.object}
            if ours:
                # Where nobody converts, both versions have the words of the newer.
                as_read = STORAGE if server.variant == "plain" else version
                wanted = convert(wanted, f"{kind.group}/{as_read}")
                wanted = {**wanted, "apiVersion": kind.api_version}
            assert contains(quantities(got), quantities({**wanted, "metadata": metadata}))
    shown = await cluster.kubectl("get", "cq,lq,workloads", "--all-namespaces")
    for column in ("COHORT", "PENDING WORKLOADS", "CLUSTERQUEUE", "RESERVED IN"):
        assert column in shown


def quantities(obj: Object) -> Any:
    """What a typed server writes another way: Jobs' amounts are strings there."""
    return yaml.safe_load(yaml.safe_dump(obj).replace("nvidia.com/gpu: '1'", "nvidia.com/gpu: 1"))


async def test_queue_converts_between_v1beta1_and_v1beta2(
    cluster: Cluster, converting: None
) -> None:
    older = quota(
        "older",
        cohort="research",
        admissionChecks=["m"],
        flavorFungibility={"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
    )
    await cluster.kube.create(v1(kinds.CLUSTER_QUEUE), older)
    newer = await cluster.kube.get(kinds.CLUSTER_QUEUE, None, "older")
    assert newer["spec"]["cohortName"] == "research"
    assert newer["spec"]["admissionChecksStrategy"] == {"admissionChecks": [{"name": "m"}]}
    assert newer["spec"]["flavorFungibility"]["whenCanPreempt"] == "MayStopSearch"
    assert KEPT[V1BETA1] in newer["metadata"]["annotations"]
    back = await cluster.kube.get(v1(kinds.CLUSTER_QUEUE), None, "older")
    assert contains(back, older)
    assert "annotations" not in back["metadata"]
    listed = await cluster.kube.list(v1(kinds.CLUSTER_QUEUE))
    assert contains({named(o): o for o in listed.items}["older"], older)


async def test_v1beta1_client_keeps_fields_of_v1beta2(cluster: Cluster, converting: None) -> None:
    config = {"kind": "MultiKueueConfig", "metadata": {"name": "c"}}
    spec = {"clusters": ["a"], "quotaManagement": "Automated"}
    await cluster.kube.create(kinds.MULTIKUEUE_CONFIG, {**config, "spec": spec})
    edit = {"spec": {"clusters": ["a", "b"]}}
    seen = await cluster.kube.patch(v1(kinds.MULTIKUEUE_CONFIG), None, "c", edit)
    assert "quotaManagement" not in seen["spec"]
    newer = await cluster.kube.get(kinds.MULTIKUEUE_CONFIG, None, "c")
    assert newer["spec"] == {"clusters": ["a", "b"], "quotaManagement": "Automated"}


OTHERWISE: Final = {
    "cohort": ({"cohort": "a"}, "write v1beta2's cohortName"),
    "admissionChecks": ({"admissionChecks": ["a"]}, "write admissionChecksStrategy"),
    "flavorFungibility": (
        {"flavorFungibility": {"whenCanBorrow": "Borrow"}},
        "write whenCanBorrow: MayStopSearch",
    ),
}


@pytest.mark.parametrize(("spec", "instead"), OTHERWISE.values(), ids=list(OTHERWISE))
async def test_without_conversion_lossy_write_is_refused(
    cluster: Cluster, plain: None, spec: Object, instead: str
) -> None:
    with pytest.raises(RefusedError, match=instead):
        await cluster.kube.create(v1(kinds.CLUSTER_QUEUE), quota("refused", **spec))


REFUSED: Final[dict[str, tuple[Kind, Object, str]]] = {
    "an enum": (
        kinds.CLUSTER_QUEUE,
        quota("x", queueingStrategy="Random"),
        'queueingStrategy: Unsupported value: "Random"',
    ),
    "a rule of the schema": (
        kinds.CLUSTER_QUEUE,
        quota("x", preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
        "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
    ),
    "a rule of the webhook": (
        kinds.CLUSTER_QUEUE,
        quota(
            "x", admissionChecksStrategy={"admissionChecks": [{"name": "m", "onFlavors": ["c"]}]}
        ),
        r"onFlavors\[0\]: Unsupported value",
    ),
    "a flavor of a topology without labels": (
        kinds.RESOURCE_FLAVOR,
        {"kind": "ResourceFlavor", "metadata": {"name": "x"}, "spec": {"topologyName": "t"}},
        "at least one nodeLabel is required when topology is set",
    ),
    "hosts above racks": (
        kinds.TOPOLOGY,
        {
            "kind": "Topology",
            "metadata": {"name": "x"},
            "spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "rack"}]},
        },
        "can only be used at the lowest level of topology",
    ),
    "a level twice": (
        kinds.TOPOLOGY,
        {
            "kind": "Topology",
            "metadata": {"name": "x"},
            "spec": {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "rack"}]},
        },
        "must be unique",
    ),
    "a cluster that is reached in no way": (
        kinds.MULTIKUEUE_CLUSTER,
        {"kind": "MultiKueueCluster", "metadata": {"name": "x"}, "spec": {"clusterSource": {}}},
        "exactly one of the fields in",
    ),
    "a toleration of everything by a value": (
        kinds.RESOURCE_FLAVOR,
        {
            "kind": "ResourceFlavor",
            "metadata": {"name": "x"},
            "spec": {"tolerations": [{"value": "a"}]},
        },
        "operator must be Exists when 'key' is empty",
    ),
}


@pytest.mark.parametrize(("kind", "obj", "why"), REFUSED.values(), ids=list(REFUSED))
async def test_invalid_input_is_refused(
    cluster: Cluster, kind: Kind, obj: Object, why: str
) -> None:
    with pytest.raises(RefusedError, match=why):
        await cluster.kube.create(kind, obj)


async def test_pod_sets_of_an_admitted_workload_are_immutable(cluster: Cluster) -> None:
    template = {"spec": {"containers": [{"name": "c", "unknownToUs": {"a": 1}}]}}
    workload: Object = {
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"queueName": "a", "podSets": [{"name": "main", "count": 1, "template": template}]},
    }
    made = await cluster.kube.create(kinds.WORKLOAD, workload)
    assert made["spec"]["active"] is True
    assert made["spec"]["podSets"][0]["template"] == template
    reserved = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "Test",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    admission = {"clusterQueue": "q", "podSetAssignments": [{"name": "main"}]}
    status = {"conditions": [reserved], "admission": admission}
    await cluster.kube.patch(
        kinds.WORKLOAD, "default", "w", {"status": status}, subresource="status"
    )
    with pytest.raises(RefusedError, match="queueName is immutable while workload quota reserved"):
        await cluster.kube.patch(kinds.WORKLOAD, "default", "w", {"spec": {"queueName": "b"}})
    await cluster.kube.delete(kinds.WORKLOAD, "default", "w")
