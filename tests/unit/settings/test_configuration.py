"""Kueue's Configuration document, as we read it."""

from pathlib import Path

import pytest

from shared.settings.configuration import (
    Configuration,
    ConfigurationError,
    duration_seconds,
    read_configuration,
)
from shared.settings.kueue_sections import UNUSED


def read(folder: Path, text: str) -> Configuration:
    path = folder / "controller_manager_config.yaml"
    path.write_text(text)
    return read_configuration(path)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5m", 300),
        ("1h30m", 5400),
        ("90s", 90),
        ("0s", 0),
        ("0", 0),
        ("1.5s", 1.5),
        ("250ms", 0.25),
    ],
)
def test_durations_are_parsed_as_by_kubernetes(text: str, seconds: float) -> None:
    assert duration_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "5 m", "m", "5m!", "-5m", "1e9s", "nan", "5M"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|negative"):
        duration_seconds(text)


def test_without_a_document_readiness_and_retention_are_off() -> None:
    configuration = read_configuration(None)
    assert configuration.pods_ready is None
    assert configuration.object_retention_policies.workloads.after_finished is None


def test_empty_section_enables_waiting_with_the_defaults_of_kueue(tmp_path: Path) -> None:
    text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nwaitForPodsReady: {}\n"
    wait = read(tmp_path, text).pods_ready
    assert wait is not None
    assert (wait.timeout, wait.recovery_seconds, wait.block_admission) == (1800, 1800, False)
    strategy = wait.requeuing_strategy
    assert (strategy.timestamp, strategy.backoff_limit_count) == ("Eviction", None)
    assert (strategy.backoff_base_seconds, strategy.backoff_max_seconds) == (60, 3600)


def test_v1beta1_needs_enable_and_blocks_admission_by_default(tmp_path: Path) -> None:
    head = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
    assert read(tmp_path, head + "waitForPodsReady: {timeout: 1m}\n").pods_ready is None
    wait = read(tmp_path, head + "waitForPodsReady: {enable: true}\n").pods_ready
    assert wait is not None
    assert (wait.timeout, wait.block_admission) == (300, True)


def test_recovery_timeout_of_zero_disables_it(tmp_path: Path) -> None:
    wait = read(tmp_path, "waitForPodsReady: {timeout: 5m, recoveryTimeout: 0s}\n").pods_ready
    assert wait is not None
    assert wait.recovery_seconds is None


def test_retention_durations_are_read(tmp_path: Path) -> None:
    text = "objectRetentionPolicies: {workloads: {afterFinished: 1h, afterDeactivatedByKueue: 0s}}"
    workloads = read(tmp_path, text).object_retention_policies.workloads
    assert (workloads.after_finished, workloads.after_deactivated_by_kueue) == (3600, 0)


def test_configuration_of_kueue_is_accepted_unchanged(tmp_path: Path) -> None:
    text = "leaderElection: {leaderElect: true}\nfairSharing: {}\nwaitForPodsReady: {timeout: 2m}\n"
    wait = read(tmp_path, text).pods_ready
    assert wait is not None
    assert wait.timeout == 120


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("waitForPodReady: {}", "waitForPodReady: unknown field"),
        ("clientConnection: {qsp: 50}", "clientConnection.qsp: unknown field"),
        ("controller: 3", "controller: must be an object, got 3"),
        (
            "metrics: {customLabels: [{name: a, nam: a}]}",
            "metrics.customLabels.0.nam: Extra inputs",
        ),
        ("metrics: {customLabels: {}}", "metrics.customLabels: Input should be a valid tuple"),
        ("metrics: {customLabels: [{name: a-b}]}", "customLabels.0.name: String should match"),
        ("metrics: {customLabels: [{name: a}, {name: a}]}", "two labels of the name a"),
        (
            "metrics: {customLabels: [{name: a, sourceLabelKey: b, sourceAnnotationKey: c}]}",
            "customLabels.0: .*sourceLabelKey and sourceAnnotationKey are mutually exclusive",
        ),
        (
            "metrics: {customLabels: [{name: a, sourceLabelKey: a/b/c}]}",
            "customLabels.0.sourceLabelKey: String should match",
        ),
        (
            "metrics: {customLabels: [{name: a, sourceKind: Workload}]}",
            "customLabels.0: .*trackedValues: must not be empty when sourceKind is Workload",
        ),
        (
            "metrics: {customLabels: [{name: a, trackedValues: [x, x]}]}",
            "trackedValues: must not contain duplicates",
        ),
        (
            f"metrics: {{customLabels: [{', '.join(f'{{name: a{n}}}' for n in range(7))}]}}",
            "at most 6 labels of sourceKind ClusterQueue, got 7",
        ),
        (
            "metrics: {localQueueMetrics: {enabled: true}}",
            "metrics.localQueueMetrics.enabled: Extra inputs",
        ),
        ("featureGates: {PartialAdmision: true}", "featureGates.PartialAdmision: unknown field"),
        ("featureGates: {PartialAdmission: 1}", "PartialAdmission: must be true or false, got 1"),
        ("featureGates: [PartialAdmission]", "featureGates: must map names to true or false"),
        (
            "integrations: {frameworks: [batch/jobs]}",
            "frameworks: .*unknown framework batch/jobs: one",
        ),
        (
            "integrations: {externalFrameworks: [Gadget]}",
            "integrations.externalFrameworks.0: String should match",
        ),
        ("integrations: {labelKeysToCpy: [a]}", "integrations.labelKeysToCpy: Extra inputs"),
        (
            "resources: {quotaCheckStrategy: IgnoreUndeclared, excludeResourcePrefixes: [a]}",
            "resources: .*excludeResourcePrefixes is not allowed when quotaCheckStrategy is IgnoreUnd",
        ),
        ("waitForPodsReady: {timeOut: 5m}", "waitForPodsReady.timeOut: Extra inputs"),
        ("waitForPodsReady: {timeout: -5m}", "waitForPodsReady.timeout: .* not be negative"),
        ("waitForPodsReady: {timeout: soon}", "waitForPodsReady.timeout: .*'soon' is no duration"),
        (
            "waitForPodsReady: {requeuingStrategy: {timestamp: Now}}",
            "requeuingStrategy.timestamp: .*'Eviction' or 'Creation'",
        ),
        (
            "waitForPodsReady: {requeuingStrategy: {backoffLimitCount: -1}}",
            "backoffLimitCount: .*greater than or equal to 0",
        ),
        ("apiVersion: config.kueue.x-k8s.io/v2\n", "apiVersion: .*one of"),
        ("kind: ClusterQueue", "kind: "),
        ("[1, 2]", "document: "),
        ("a: [", "not YAML"),
    ],
)
def test_unusable_value_is_refused_with_the_field(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read(tmp_path, text)


NOT_LISTED = (
    "integrations.frameworks: not listed, and wait all the same if they name a queue: kubeflow.org/jaxjob, "
    "kubeflow.org/mpijob, kubeflow.org/paddlejob, kubeflow.org/pytorchjob, kubeflow.org/tfjob, "
    "kubeflow.org/xgboostjob, ray.io/raycluster, ray.io/rayjob, ray.io/rayservice, "
    "sparkoperator.k8s.io/sparkapplication, workload.codeflare.dev/appwrapper"
)
WARNINGS = {
    "a section that no service reads": (
        "clientConnection: {qps: 50, burst: 100}",
        ["clientConnection is not used: writes follow the API server's own limits"],
    ),
    "a feature that is not offered": (
        "featureGates: {TopologyAwareScheduling: true}",
        ["featureGates.TopologyAwareScheduling: true has no effect: Sluicegate does not do this"],
    ),
    "a feature that cannot be switched off": (
        "featureGates: {PartialAdmission: false}",
        ["featureGates.PartialAdmission: false has no effect: Sluicegate always does this"],
    ),
    "features that are as they shall be": (
        "featureGates: {PartialAdmission: true, TopologyAwareScheduling: false}", [],
    ),
    "labels of metrics": (
        (
            "metrics: {enableClusterQueueResources: true, customLabels: [{name: team}, "
            "{name: job, sourceKind: Workload, trackedValues: [a]}]}"
        ),
        [
            ("metrics.customLabels: job is not used: metrics have labels of queues and cohorts, not of "
            "Workloads")
        ],
    ),
    "an address for metrics": (
        "metrics: {bindAddress: ':8080'}",
        [
            ("metrics.bindAddress is not used: each service has settings of its own, see "
            "docs/reference/settings.md")
        ],
    ),
    "metrics that cannot be left out": (
        "metrics: {enableClusterQueueResources: false, localQueueMetrics: {enable: false}}",
        ["metrics.enableClusterQueueResources: false has no effect: they are always published"],
    ),
    "a kind that is not listed": (
        "integrations: {frameworks: [batch/job, trainer.kubeflow.org/trainjob]}",
        [
            ("integrations.frameworks: trainer.kubeflow.org/trainjob: objects with a queue are refused, "
            "because their pods cannot be counted; apply an Integration that counts them"),
            NOT_LISTED.replace("queue: ", "queue: jobset.x-k8s.io/jobset, "),
        ],
    ),
    "devices": (
        "resources: {deviceClassMappings: [{name: gpu, deviceClassNames: [a]}]}",
        [
            ("resources.deviceClassMappings is not used: pods with claims for devices wait, because devices "
            "are not counted")
        ],
    ),
    "kinds that run elsewhere": (
        ("multiKueue: {externalFrameworks: [{name: PipelineRun.v1.tekton.dev}, {name: Gadget.v1.example.com},"
        " {name: PipelineRun.v2.tekton.dev}]}"),
        [
            ("multiKueue.externalFrameworks: Gadget.v1.example.com: no Integration ships for it; "
            "apply one, then it waits and can run on spokes"),
            "multiKueue.externalFrameworks: PipelineRun.v2.tekton.dev: the Integration that ships is for v1",
        ],
    ),
    "kinds of others' controllers": (
        "integrations: {externalFrameworks: [Workflow.v1alpha1.argoproj.io, Gadget.v1.example.com]}",
        [
            ("integrations.externalFrameworks: Gadget.v1.example.com: no Integration ships for it; "
            "apply one, then it waits and can run on spokes"),
        ],
    ),
    "what is used": (
        "resources: {quotaCheckStrategy: IgnoreUndeclared}\nintegrations: {labelKeysToCopy: [team]}", [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WARNINGS)
def test_part_without_effect_is_named_in_a_warning(tmp_path: Path, case: str) -> None:
    text, warnings = WARNINGS[case]
    assert read(tmp_path, text).warnings() == warnings


@pytest.mark.parametrize("section", UNUSED)
def test_section_without_effect_is_named_in_a_warning(tmp_path: Path, section: str) -> None:
    [said] = read(tmp_path, f"{section}: null").warnings()
    assert said == f"{section} is not used: {UNUSED[section].means}"


def test_missing_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"absent\.yaml: No such file"):
        read_configuration(tmp_path / "absent.yaml")


def test_document_in_the_how_to_is_valid(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "pods-ready.md"
    block = page.read_text().split("```yaml")[1].split("```")[0]
    configuration = read(tmp_path, block)
    assert configuration.pods_ready is not None
    assert configuration.pods_ready.requeuing_strategy.backoff_limit_count == 5
    assert configuration.object_retention_policies.workloads.after_finished == 86_400


SHARING: dict[str, tuple[str, str, tuple[str, ...] | None]] = {
    "the section alone enables it, with both strategies": (
        "v1beta2",
        "fairSharing: {}",
        ("LessThanOrEqualToFinalShare", "LessThanInitialShare"),
    ),
    "one strategy": (
        "v1beta2",
        "fairSharing: {preemptionStrategies: [LessThanInitialShare]}",
        ("LessThanInitialShare",),
    ),
    "the older version asks for a word": ("v1beta1", "fairSharing: {}", None),
    "and has it": (
        "v1beta1",
        "fairSharing: {enable: true, preemptionStrategies: [LessThanOrEqualToFinalShare]}",
        ("LessThanOrEqualToFinalShare",),
    ),
    "off without the section": ("v1beta2", "", None),
}


@pytest.mark.parametrize(("version", "text", "strategies"), SHARING.values(), ids=list(SHARING))
def test_fair_sharing_settings_are_read(
    tmp_path: Path, version: str, text: str, strategies: tuple[str, ...] | None
) -> None:
    head = f"apiVersion: config.kueue.x-k8s.io/{version}\nkind: Configuration\n"
    sharing = read(tmp_path, head + text).sharing
    assert (None if sharing is None else sharing.preemption_strategies) == strategies


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]}",
            "fairSharing.preemptionStrategies: ",
        ),
        ("fairSharing: {preemptionStrategies: [Other]}", "fairSharing.preemptionStrategies.0: "),
        ("admissionFairSharing: {}", "admissionFairSharing.usageHalfLifeTime: "),
        ("admissionFairSharing: {usageHalfLifeTime: -1h}", "must not be negative"),
        (
            "admissionFairSharing: {usageHalfLifeTime: 1h, usageSamplingInterval: 0s}",
            "usageSamplingInterval: Input should be greater than 0",
        ),
        (
            "admissionFairSharing: {usageHalfLifeTime: 1h, resourceWeights: {cpu: -1}}",
            "resourceWeights.cpu: ",
        ),
    ],
)
def test_fair_sharing_value_that_kueue_refuses_is_refused(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read(tmp_path, text)
    assert says in str(refused.value)


ROUNDS = "kueue.x-k8s.io/multikueue-dispatcher-incremental"
PLUGIN = "{name: a, execConfig: {apiVersion: v1, command: c, interactiveMode: Never}}"
ROUNDS_ONLY = f"incrementalDispatcherConfig: only with dispatcherName {ROUNDS}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gcInterval: -1m", "multiKueue.gcInterval: Value error, '-1m' must not be negative"),
        ("workerLostTimeout: -1s", "multiKueue.workerLostTimeout: "),
        ("origin: not a label", "multiKueue.origin: "),
        ("incrementalDispatcherConfig: {stepSize: 2}", ROUNDS_ONLY),
        (
            f"dispatcherName: {ROUNDS}\n  incrementalDispatcherConfig: {{stepSize: 0}}",
            "multiKueue.incrementalDispatcherConfig.stepSize: ",
        ),
        ("externalFrameworks: [{name: PipelineRun}]", "multiKueue.externalFrameworks.0.name: "),
        (
            "externalFrameworks: [{name: A.v1.b}, {name: A.v1.b}]",
            "multiKueue.externalFrameworks: Value error, two frameworks of the name A.v1.b",
        ),
        ("workerLostTimeOut: 1m", "multiKueue.workerLostTimeOut: Extra inputs"),
        (
            "clusterProfile: {accessProviders: [{name: a, execConfig: {apiVersion: v1, command: c}}]}",
            "multiKueue.clusterProfile.accessProviders.0.execConfig.interactiveMode: Field required",
        ),
        (
            f"clusterProfile: {{accessProviders: [{PLUGIN}], credentialsProviders: [{PLUGIN}]}}",
            "credentialsProviders: must not be set beside accessProviders",
        ),
    ],
)
def test_multikueue_value_that_kueue_refuses_is_refused(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read(tmp_path, f"multiKueue:\n  {text}\n")
    assert says in str(refused.value)


def test_multikueue_settings_of_kueue_are_accepted(tmp_path: Path) -> None:
    text = (
        "multiKueue: {gcInterval: 1m, externalFrameworks: [{name: PipelineRun.v1.tekton.dev}],"
        " clusterProfile: {accessProviders: []}}"
    )
    assert read(tmp_path, text).multi_kueue.gc_interval == 60
