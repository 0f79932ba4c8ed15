"""Borders to operators: files and variables that a service reads at its start or later."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml
from hypothesis import strategies as st
from pydantic import ValidationError

from services.provisioner.config.host_config import parse_host_config
from services.provisioner.config.provider_types import RULES
from services.whatif.manifests import load_documents, to_manifest
from shared.integrations import Integration, IntegrationError
from shared.integrations.document import parse
from shared.integrations.registry import documents
from shared.kube.kubeconfig import read_plain
from shared.runtime.command import CommandError
from shared.settings.access import access_of, public_key
from shared.settings.base import ServiceSettings
from shared.settings.configuration import ConfigurationError, read_configuration
from tests.fuzz import objects
from tests.fuzz.border import Border
from tests.fuzz.values import ODD, broken, strings, written

_KUBECONFIG: Final = {
    "apiVersion": "v1", "kind": "Config", "current-context": "a",
    "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {
        "server": "https://127.0.0.1:6443", "certificate-authority-data": "Zm9v", "tls-server-name": "x",
        "certificate-authority": "ca.pem"}}],
    "users": [{"name": "u", "user": {
        "token": "t", "client-certificate-data": "Zm9v", "client-key-data": "Zm9v"}}],
}  # fmt: skip
_CONFIGURATION: Final = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": "kueue-system",
    "manageJobsWithoutQueueName": True,
    "managedJobsNamespaceSelector": objects.SELECTOR,
    "waitForPodsReady": {"enable": True, "timeout": "5m", "recoveryTimeout": "3m", "blockAdmission": False,
                         "requeuingStrategy": {"timestamp": "Eviction", "backoffLimitCount": 3,
                                               "backoffBaseSeconds": 60, "backoffMaxSeconds": 3600}},
    "fairSharing": {"enable": True, "preemptionStrategies": ["LessThanOrEqualToFinalShare"]},
    "admissionFairSharing": {"usageHalfLifeTime": "1h", "usageSamplingInterval": "5m",
                             "resourceWeights": {"cpu": 2.0}},
    "resources": {"excludeResourcePrefixes": ["a.b/"], "transformations": [
        {"input": "nvidia.com/mig", "strategy": "Replace", "outputs": {"gpu": "1"}}]},
    "objectRetentionPolicies": {"workloads": {"afterFinished": "1h", "afterDeactivatedByKueue": "1h"}},
    "multiKueue": {"gcInterval": "1m", "origin": "multikueue", "workerLostTimeout": "15m"},
    "integrations": {"frameworks": ["batch/job"]}, "featureGates": {"A": True},
}  # fmt: skip
_ODD_TEXTS: Final = [value for value in ODD if isinstance(value, str)]


def _yaml(value: Any) -> str:
    """JSON, which is YAML; what JSON cannot hold as Python writes it."""
    return written(value).decode()


def _documents(*samples: Any) -> st.SearchStrategy[str]:
    """Documents as JSON, as YAML, and texts that are nearly YAML."""
    blocks = [yaml.safe_dump(sample) for sample in samples]
    return st.one_of(
        broken(*samples).map(_yaml),
        broken(*samples).map(_yaml),
        strings(
            *blocks,
            "a: &x [1]\nb: *x\n",
            "!!python/object:a.b {}",
            "? [a]\n: b\n",
            "%YAML 9\n---\n",
        ),
    )


def _file(read: Callable[[Path], object]) -> Callable[[str], object]:
    def call(text: str) -> object:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "file"
            path.write_bytes(text.encode(errors="surrogatepass"))
            return read(path)

    return call


def _kubeconfig(path: Path) -> object:
    found = read_plain(str(path), None)
    try:
        return found and found.tls()
    except (OSError, ValueError):
        return None  # As `Credentials.tls` says.


def _integrations(text: str) -> object:
    return [Integration.load(obj, lines) for obj, lines in parse(text)]


def _manifests(path: Path) -> object:
    return [to_manifest(source, document) for source, document in load_documents(path)]


def _hosts(value: Any) -> object:
    data = value if isinstance(value, dict) else {}
    found = parse_host_config(
        data, available=frozenset({"fake", "aws", "ibmz", "ibmp"}), rules=RULES
    )
    return [
        found.resolve(platform) for platform in ("linux/arm64", "linux/s390x", *found.platforms)
    ]


def _settings(variables: dict[str, str]) -> object:
    """Settings as they are read from the environment, and the way to NATS in them."""
    given: dict[str, Any] = {name.lower(): value for name, value in variables.items()}
    found = ServiceSettings(**given)
    access = access_of({f"SLUICE_{name}": value for name, value in variables.items()})
    return found, access.options()


_NAMES: Final = (
    "NATS_URL", "NATS_NKEY", "NATS_CREDENTIALS", "NATS_CA", "NATS_CERTIFICATE", "NATS_PRIVATE_KEY", "CLUSTER",
    "LOG_LEVEL", "INSTANCE", "HEALTH_PORT", "CONFIGURATION", "GRACEFUL_STOP_SECONDS",
)  # fmt: skip
_VALUES: Final = st.one_of(
    strings("nats://127.0.0.1:4222", "tls://a,tls://b", "/etc/x/key", "info", "8080"),
    st.sampled_from(_ODD_TEXTS),
)
_VARIABLES: Final = st.dictionaries(st.sampled_from(_NAMES), _VALUES)


def borders() -> Iterator[Border]:
    """Each kind of file."""
    texts = [text for _, text in documents()]
    integrations = [yaml.safe_load(text) for text in texts]
    yield Border(
        name="host configuration",
        strategy=broken(objects.HOSTS).map(_only_strings),
        call=_hosts,
        weight=2.0,
    )
    yield Border(
        name="host configuration, values", call=_hosts, weight=2.0,
        strategy=st.dictionaries(st.sampled_from(sorted(objects.HOSTS)), st.one_of(
            st.sampled_from(_ODD_TEXTS), strings(*objects.HOSTS.values())), max_size=4).map(
                lambda changes: {**objects.HOSTS, **changes}),
    )  # fmt: skip
    yield Border(name="kubeconfig", strategy=_documents(_KUBECONFIG), call=_file(_kubeconfig))
    yield Border(
        name="configuration of Kueue", strategy=_documents(_CONFIGURATION),
        call=_file(read_configuration), allowed=(ConfigurationError,),
    )  # fmt: skip
    yield Border(
        name="document of an integration", strategy=_documents(*integrations), call=_integrations,
        allowed=(IntegrationError,), weight=0.5,
    )  # fmt: skip
    yield Border(
        name="manifests of what-if", strategy=_documents(objects.JOB, objects.CLUSTER_QUEUE),
        call=_file(_manifests), allowed=(CommandError,),
    )  # fmt: skip
    yield Border(
        name="settings of a service",
        strategy=_VARIABLES,
        call=_settings,
        allowed=(ValidationError,),
    )
    yield Border(
        name="key of a NATS user", call=public_key, allowed=(ValueError,),
        strategy=strings("SUAFOO", "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"),
    )  # fmt: skip


def _only_strings(value: Any) -> Any:
    """The API server sees to it that a ConfigMap maps strings to strings."""
    found = value if isinstance(value, dict) else {}
    return {
        key: text if isinstance(text, str) else written(text).decode()[:5000]
        for key, text in found.items()
    }
