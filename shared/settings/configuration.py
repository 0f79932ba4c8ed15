"""Kueue's `Configuration` document (its `apis/config/v1beta2`), as far as Sluicegate follows it.

apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
waitForPodsReady:
  timeout: 5m
  requeuingStrategy: {backoffLimitCount: 5}
objectRetentionPolicies:
  workloads: {afterFinished: 1h}

One file for all services, read once at start. A document that was written for Kueue can be used as it is:
`Configuration.warnings` names what has no effect here (`kueue_sections`). A misspelt field is refused.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from shared.contracts.controllers import MULTIKUEUE_DISPATCHER_PREFIX
from shared.contracts.kube.names import NAMESPACE_NAME
from shared.contracts.kube.quantities import parse_quantity
from shared.settings import frameworks, kueue_sections
from shared.settings.cluster_profiles import ClusterProfiles
from shared.settings.kueue_metrics import Metrics
from shared.settings.sections import LabelRequirement, LabelSelector, Section

GROUP: Final = "config.kueue.x-k8s.io"
BYTES_MAX: Final = 1024 * 1024
"""Limit of a ConfigMap."""

_TIMEOUT_SECONDS: Final = {"v1beta1": 300.0, "v1beta2": 1800.0}
"""Kueue's defaults of `waitForPodsReady.timeout`. The two versions differ."""

_UNITS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_LABEL_VALUE: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


class ConfigurationError(ValueError):
    """The document cannot be used. The text names file, field and rule."""


def duration_seconds(value: object) -> float:
    """Read a `metav1.Duration`: ``"1h30m"``, ``"0s"``. Raises ValueError, also for negative ones."""
    text = str(value)
    if text == "0":
        return 0.0
    if text.startswith("-"):
        raise ValueError(f"{text!r} must not be negative")
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f'{text!r} is no duration such as "5m" or "1h30m"')
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


Seconds = Annotated[float, BeforeValidator(duration_seconds)]


class RequeuingStrategy(Section):
    """How a workload whose pods were not ready in time queues again."""

    timestamp: Literal["Eviction", "Creation"] = "Eviction"
    """Its place in the queue: that of its eviction, so behind those who came meanwhile, or its own."""

    backoff_limit_count: Annotated[int, Field(ge=0)] | None = None
    """After so many evictions the next one deactivates it; None: never."""

    backoff_base_seconds: Annotated[int, Field(ge=0)] = 60
    backoff_max_seconds: Annotated[int, Field(ge=0)] = 3600


class WaitForPodsReady(Section):
    """All or nothing: who is admitted must get all its pods ready in time, or it goes."""

    enable: bool = True
    """`v1beta1` has to say so; in `v1beta2` the section itself does."""

    timeout: Seconds = _TIMEOUT_SECONDS["v1beta1"]
    """From admission until all pods are ready."""

    recovery_timeout: Seconds | None = None
    """From the loss of a pod until all are ready again; None: like `timeout`, 0: forever."""

    block_admission: bool = False
    """Nobody is admitted while a workload that was admitted is not ready."""

    requeuing_strategy: RequeuingStrategy = RequeuingStrategy()

    @property
    def recovery_seconds(self) -> float | None:
        """The recovery timeout in force; None without one."""
        seconds = self.timeout if self.recovery_timeout is None else self.recovery_timeout
        return seconds or None


class WorkloadRetention(Section):
    """How long what has ended is kept; None: until somebody deletes it."""

    after_finished: Seconds | None = None
    """From the end of a workload until its Workload object is deleted. The job is not."""

    after_deactivated_by_kueue: Seconds | None = None
    """From a deactivation that no user asked for until the job is deleted, and its Workload with it."""


class ObjectRetentionPolicies(Section):
    """Of which objects old ones are deleted."""

    workloads: WorkloadRetention = WorkloadRetention()


class NamespaceSelector(LabelSelector):
    """Namespaces, by their labels; an empty one means all."""

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the selector selects the namespace `name` with these labels.

        The label of its name counts too.
        """
        return self.selects({NAMESPACE_NAME: name, **labels})


_NOT_OF_THE_SYSTEM: Final = NamespaceSelector(
    match_expressions=(
        LabelRequirement(
            key=NAMESPACE_NAME,
            operator="NotIn",
            values=("kube-system", "kueue-system", "sluicegate"),
        ),
    )
)


def _amount(value: object) -> str:
    text = str(value)
    parse_quantity(text)
    return text


class ResourceTransformation(Section):
    """What one resource is counted as, beside itself or instead."""

    input: Annotated[str, Field(min_length=1)]
    strategy: Literal["Retain", "Replace"] = "Retain"
    multiply_by: str = ""
    """Another resource by whose amount the outputs are multiplied; not asked for: by none."""

    outputs: dict[str, Annotated[str, BeforeValidator(_amount)]] = {}
    """Resource to quantity of it for each unit of the input. Less than nothing is an allowance."""


class Resources(Section):
    """What of requests quota counts, and as what."""

    quota_check_strategy: Literal["BlockUndeclared", "IgnoreUndeclared"] = "BlockUndeclared"
    """Whether what a queue has no quota for keeps a workload waiting there, or is not counted."""

    exclude_resource_prefixes: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    transformations: tuple[ResourceTransformation, ...] = ()
    device_class_mappings: tuple[Any, ...] = ()
    """Not used: pods with claims for devices wait, because devices are not counted."""

    @property
    def transformed(self) -> frozenset[str]:
        """Resources that are counted otherwise than they are asked for."""
        outputs = (name for one in self.transformations for name in one.outputs)
        return frozenset((*outputs, *(one.input for one in self.transformations)))

    @model_validator(mode="after")
    def _prefixes_need_blocking(self) -> "Resources":
        if self.exclude_resource_prefixes and self.quota_check_strategy == "IgnoreUndeclared":
            raise ValueError(
                "excludeResourcePrefixes is not allowed when quotaCheckStrategy is IgnoreUndeclared"
            )
        return self

    @field_validator("transformations")
    @classmethod
    def _inputs_are_unique(
        cls, value: tuple[ResourceTransformation, ...]
    ) -> tuple[ResourceTransformation, ...]:
        inputs = [one.input for one in value]
        doubled = sorted({name for name in inputs if inputs.count(name) > 1})
        if doubled:
            raise ValueError(f"two transformations of {', '.join(doubled)}")
        return value


class FairSharing(Section):
    """Unused quota goes to who uses the smallest share of what may be borrowed."""

    enable: bool = True
    """Only `v1beta1` has it, and there it is False unless set."""

    preemption_strategies: tuple[
        Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"], ...
    ] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
    """Tried in this order."""

    @field_validator("preemption_strategies")
    @classmethod
    def _strategies_are_supported(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value not in _STRATEGIES:
            shown = ", ".join(str(list(one)) for one in _STRATEGIES)
            raise ValueError(f"{list(value)}: one of {shown}")
        return value


_STRATEGIES: Final = (
    ("LessThanOrEqualToFinalShare",),
    ("LessThanInitialShare",),
    ("LessThanOrEqualToFinalShare", "LessThanInitialShare"),
)
"""The lists that Kueue takes."""


class AdmissionFairSharing(Section):
    """Inside a queue that wants it, LocalQueues that used less lately go first."""

    usage_half_life_time: Seconds
    """After it, past usage counts half; 0: it does not count."""

    usage_sampling_interval: Annotated[Seconds, Field(gt=0)] = 300.0
    resource_weights: dict[str, Annotated[float, Field(ge=0)]] = {}
    """Resource to how much it counts; 1 where nothing is said."""


INCREMENTAL: Final = f"{MULTIKUEUE_DISPATCHER_PREFIX}incremental"
"""Kueue's name of the dispatcher that goes by rounds."""


class IncrementalDispatcher(Section):
    """How that dispatcher goes by rounds."""

    step_size: Annotated[int, Field(ge=1)] = 3


KindName = Annotated[str, Field(pattern=r"^[^.]+\.[^.]+\..+$")]
"""`kind.version.group`."""


class ExternalFramework(Section):
    """A kind that runs elsewhere: as every kind that an Integration describes."""

    name: KindName


class MultiKueue(Section):
    """How work is sent to other clusters. What is not said is as the dispatcher's own settings say."""

    gc_interval: Seconds | None = None
    """0: copies that nobody ordered and nobody wants are left alone. Else they go when they are seen."""

    origin: Annotated[str, Field(max_length=63, pattern=_LABEL_VALUE)] | None = None
    worker_lost_timeout: Seconds | None = None
    dispatcher_name: str | None = None
    incremental_dispatcher_config: IncrementalDispatcher | None = None
    external_frameworks: tuple[ExternalFramework, ...] = ()
    cluster_profile: ClusterProfiles | None = None

    @field_validator("external_frameworks")
    @classmethod
    def _frameworks_differ(
        cls, value: tuple[ExternalFramework, ...]
    ) -> tuple[ExternalFramework, ...]:
        names = [one.name for one in value]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two frameworks of the name {', '.join(doubled)}")
        return value

    @model_validator(mode="after")
    def _rounds_need_incremental_dispatcher(self) -> "MultiKueue":
        if self.incremental_dispatcher_config and self.dispatcher_name != INCREMENTAL:
            raise ValueError(f"incrementalDispatcherConfig: only with dispatcherName {INCREMENTAL}")
        return self

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for each kind that does not run elsewhere because the section says so."""
        for text in frameworks.external_warnings(
            tuple(framework.name for framework in self.external_frameworks)
        ):
            yield f"multiKueue.externalFrameworks: {text}"


class Integrations(Section):
    """Which kinds can wait. Here Integration objects say that."""

    frameworks: tuple[str, ...] | None = None
    external_frameworks: tuple[KindName, ...] = ()
    """Kinds whose own controllers make Workloads. Here a Workload of anybody waits."""

    label_keys_to_copy: tuple[str, ...] = ()
    """Labels of a job that its Workload gets when it is made."""

    @field_validator("frameworks")
    @classmethod
    def _frameworks_exist(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if unknown := sorted(set(value or ()) - frameworks.KNOWN):
            known = ", ".join(sorted(frameworks.KNOWN))
            raise ValueError(f"unknown framework {', '.join(unknown)}: one of {known}")
        return value

    def warnings(self) -> Iterator[str]:
        """Yield a sentence for each kind that is not treated as the section says."""
        for text in frameworks.warnings(self.frameworks):
            yield f"integrations.frameworks: {text}"
        for text in frameworks.external_warnings(self.external_frameworks):
            yield f"integrations.externalFrameworks: {text}"


class Configuration(Section):
    """The document."""

    model_config = ConfigDict(extra="allow")

    api_version: str = f"{GROUP}/v1beta2"
    kind: Literal["Configuration"] = "Configuration"
    wait_for_pods_ready: WaitForPodsReady | None = None
    """None: nobody is evicted for pods that are not ready. (Kueue, from 0.19 on, waits 30 minutes.)"""

    object_retention_policies: ObjectRetentionPolicies = ObjectRetentionPolicies()
    manage_jobs_without_queue_name: bool = False
    """Whether jobs that name no queue are suspended too, until somebody gives them one."""

    managed_jobs_namespace_selector: NamespaceSelector = _NOT_OF_THE_SYSTEM
    """Namespaces whose jobs are managed at all; by default those of the system are not."""

    resources: Resources = Resources()
    fair_sharing: FairSharing | None = None
    """None: classical preemption."""

    admission_fair_sharing: AdmissionFairSharing | None = None
    """None: past usage does not matter."""

    multi_kueue: MultiKueue = MultiKueue()
    integrations: Integrations = Integrations()
    metrics: Metrics = Metrics()

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_version(cls, document: Any) -> Any:
        """`v1beta1` has a field to enable the section, blocks by default, and has other timeouts."""
        if not isinstance(document, dict):
            return document
        version = str(document.get("apiVersion", "")).rpartition("/")[2]
        sharing = document.get("fairSharing")
        if version == "v1beta1" and isinstance(sharing, dict):
            document = {**document, "fairSharing": {"enable": False, **sharing}}
        wait = document.get("waitForPodsReady")
        if not isinstance(wait, dict) or version not in _TIMEOUT_SECONDS:
            return document
        old = version == "v1beta1"
        wait = {
            **({"enable": False} if old else {}),
            "timeout": f"{_TIMEOUT_SECONDS[version]:g}s",
            "blockAdmission": old,
            **wait,
        }
        return {**document, "waitForPodsReady": wait}

    @field_validator("api_version")
    @classmethod
    def _known_version(cls, value: str) -> str:
        known = [f"{GROUP}/{version}" for version in _TIMEOUT_SECONDS]
        if value not in known:
            raise ValueError(f"{value!r}: one of {', '.join(known)}")
        return value

    @model_validator(mode="after")
    def _known_sections(self) -> "Configuration":
        sections = self.model_extra or {}
        known = {*kueue_sections.UNUSED, "featureGates"}
        unknown = [f"{name}: unknown field" for name in sorted(sections.keys() - known)]
        for name, value in sections.items():
            unknown += kueue_sections.problems(name, value)
        if unknown:
            raise ValueError("; ".join(unknown))
        return self

    def warnings(self) -> list[str]:
        """A sentence for each part of the document that has no effect, or another one than with Kueue."""
        found = [
            text
            for name, value in (self.model_extra or {}).items()
            for text in kueue_sections.warnings(name, value)
        ]
        found += self.integrations.warnings()
        found += self.metrics.warnings()
        if self.resources.device_class_mappings:
            found.append(
                "resources.deviceClassMappings is not used: pods with claims for devices wait, because "
                "devices are not counted"
            )
        found += self.multi_kueue.warnings()
        return found

    @property
    def pods_ready(self) -> WaitForPodsReady | None:
        """`waitForPodsReady`, if it is in force."""
        wait = self.wait_for_pods_ready
        return wait if wait is not None and wait.enable else None

    @property
    def sharing(self) -> FairSharing | None:
        """`fairSharing`, if it is in force."""
        sharing = self.fair_sharing
        return sharing if sharing is not None and sharing.enable else None


def read_configuration(path: Path | None) -> Configuration:
    """Read the document; without a file all values are defaults. Raises `ConfigurationError`."""
    if path is None:
        return Configuration()
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not YAML: {error}") from error
    if len(text) > BYTES_MAX:
        raise ConfigurationError(f"{path}: larger than {BYTES_MAX} bytes")
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigurationError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    try:
        return Configuration.model_validate({} if document is None else document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        raise ConfigurationError(f"{path}: {where}: {first['msg']}") from error
