"""Sections of Kueue's Configuration that no service reads, and its feature gates.

Nothing of the document is passed over in silence: a misspelt field is an error with its path, and what is
read and not used is said, with what that means.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Fields = Mapping[str, "Fields | None"]
"""The fields of a section; None: whatever is in it."""


@dataclass(frozen=True, slots=True)
class UnusedSection:
    """A section that no service reads."""

    fields: Fields | None
    means: str
    """What is done instead, in words."""


_ITS_OWN: Final = "each service has settings of its own, see docs/reference/settings.md"

UNUSED: Final[Mapping[str, UnusedSection]] = {
    "cacheSyncTimeout": UnusedSection(None, "a service waits for its caches as long as it takes"),
    "clientConnection": UnusedSection(
        {"qps": None, "burst": None}, "writes follow the API server's own limits"
    ),
    "controller": UnusedSection(
        {"groupKindConcurrency": None, "cacheSyncTimeout": None},
        "the patcher's settings say how much it writes at a time",
    ),
    "gracefulShutDown": UnusedSection(None, "a service stops when its work in hand is done"),
    "health": UnusedSection(
        {"healthProbeBindAddress": None, "readinessEndpointName": None, "livenessEndpointName": None},
        _ITS_OWN,
    ),
    "internalCertManagement": UnusedSection(
        {"enable": None, "webhookServiceName": None, "webhookSecretName": None},
        "the webhook's certificate is a watched file, see docs/how-to/deploy.md",
    ),
    "leaderElection": UnusedSection(None, "leases in NATS elect leaders"),
    "namespace": UnusedSection(None, "services run in the namespace in which they are deployed"),
    "pprofBindAddress": UnusedSection(None, "there is no pprof"),
    "queueVisibility": UnusedSection(
        {"clusterQueues": {"maxCount": None}, "updateIntervalSeconds": None},
        "who waits is told on demand, by the console and `sluice get workloads`",
    ),
    "tls": UnusedSection(
        {"minVersion": None, "cipherSuites": None, "curvePreferences": None},
        "the webhook takes TLS 1.2 and newer, with Python's ciphers",
    ),
    "visibilityServer": UnusedSection({"bindAddress": None, "bindPort": None}, _ITS_OWN),
    "webhook": UnusedSection({"port": None, "host": None, "certDir": None}, _ITS_OWN),
}  # fmt: skip
"""By name; none of them decides who is admitted."""

_OFFERED: Final = """
AdmissionFairSharing AdmissionGatedBy CleanupProvisioningRequestsOnEviction CustomMetricLabels
FairSharingPreemptWithinNominal
FairSharingPrioritizeNonBorrowing FinishOrphanedWorkloads FlavorFungibility
FlavorFungibilityPreserveScanProgress KueueDRARejectWorkloadsWhenDRADisabled LocalQueueMetrics
LWSImmutableGroupSize ManagedJobsNamespaceSelectorAlwaysRespected MetricForWorkloadCreationLatency
MetricsForCohorts MultiKueue MultiKueueAdaptersForCustomJobs MultiKueueClusterProfile
MultiKueueIncrementalDispatcherConfig
MultiKueueIncrementalDispatcherRespectConfigOrder MultiKueueKubeConfigPathValidation
MultiKueueRemoteSpecSync PartialAdmission PrioritySortingWithinCohort QuotaCheckStrategy
ReclaimablePods RecomputeAssignmentUponPreemptionTargetsOverlap RemoveFinalizersWithStrictPatch
SchedulingEquivalenceHashing TLSOptions UnadmittedWorkloadsObservability
ValidateRayAndSparkJobUpdates VectorizedResourceRequests VisibilityOnDemand
WorkloadIdentifierAnnotations WorkloadPriorityClassDefaulting
WorkloadValidateResourcesAreNonNegative WorkloadValidationForPodSetMetadata
"""
"""Gates of what Sluicegate always does, separated by white space."""

_NOT_OFFERED: Final = """
AssignQueueLabelsForPods ConcurrentAdmission
DeferRayServiceFinalizationForRedisCleanup DisableWaitForPodsReady ElasticJobsViaWorkloadSlices
ElasticJobsViaWorkloadSlicesWithTAS FailureRecoveryPolicy FastQuotaReleaseInPodIntegration
KueueDRAIntegration KueueDRAIntegrationConsumableCapacity KueueDRAIntegrationExtendedResource
KueueDRAIntegrationPartitionableDevices
MultiKueueManagerQuotaAutomation MultiKueueOrchestratedPreemption PodIntegrationValidateGroupOwner
PrioritizePreemptorWorkloads PriorityBoost RejectUpdatesToCQWithInvalidOnFlavors
SchedulerLibraryIntegration ShortWorkloadNames SkipAncestorCheckForDeletedWorkloads
SkipReassignmentForPodOwnedWorkloads SparkApplicationIntegration
TASAssignmentsEncodingByHostnamePrefix TASBalancedPlacement TASCacheNodeMatchResults
TASCacheTopologyTree TASCachingRemainingResources TASFailedNodeReplacement
TASFailedNodeReplacementFailFast TASHandleOverlappingFlavors TASMultiLayerTopology TASProfileMixed
TASRecomputeAssignmentWithinSchedulingCycle TASReplaceNodeDueToNotReadyOverFixedTime
TASReplaceNodeOnNodeTaints TASReplaceNodeOnPodTermination TASRespectNodeAffinityPreferred
TASValidateWorkloadSliceSize TopologyAwareScheduling UnadmittedWorkloadsExplicitStatus
WorkloadRequestUseMergePatch
"""
"""Gates of what Sluicegate does not do, or does in its own way."""

_ALWAYS: Final = frozenset(_OFFERED.split())
_NEVER: Final = frozenset(_NOT_OFFERED.split())


def problems(name: str, value: Any) -> Iterator[str]:
    """Yield what is wrong with a section that is not read: fields that Kueue does not have."""
    if name == "featureGates":
        yield from _gate_problems(value)
    elif name in UNUSED:
        yield from _unknown(name, value, UNUSED[name].fields)


def warnings(name: str, value: Any) -> Iterator[str]:
    """Yield a sentence for each thing in a section that has no effect, or another one than with Kueue."""
    if name == "featureGates":
        yield from _gate_warnings(value or {})
    elif name in UNUSED:
        yield f"{name} is not used: {UNUSED[name].means}"


def _gate_problems(value: Any) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"featureGates: must map names to true or false, got {value!r}"
        return
    for gate, on in value.items():
        if gate not in _ALWAYS and gate not in _NEVER:
            yield f"featureGates.{gate}: unknown field"
        elif not isinstance(on, bool):
            yield f"featureGates.{gate}: must be true or false, got {on!r}"


def _gate_warnings(gates: Mapping[str, bool]) -> Iterator[str]:
    for gate, on in sorted(gates.items()):
        if on and gate in _NEVER:
            yield f"featureGates.{gate}: true has no effect: Sluicegate does not do this"
        elif not on and gate in _ALWAYS:
            yield f"featureGates.{gate}: false has no effect: Sluicegate always does this"


def _unknown(path: str, value: Any, fields: Any) -> Iterator[str]:
    """Fields of `value` that are not in `fields`."""
    if fields is None or value is None:
        return
    if not isinstance(value, dict):
        yield f"{path}: must be an object, got {value!r}"
        return
    for key, inner in value.items():
        if key not in fields:
            yield f"{path}.{key}: unknown field"
        else:
            yield from _unknown(f"{path}.{key}", inner, fields[key])
