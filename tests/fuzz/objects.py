"""One whole object of each kind that somebody reads, with most fields that are read."""

from typing import Any, Final

from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Kind

Object = dict[str, Any]

NOON: Final = "2026-01-01T12:00:00Z"
JOB_SET: Final = Kind(group="jobset.x-k8s.io", version="v1alpha2", plural="jobsets", kind="JobSet")


def obj(kind: Kind, name: str, *, spec: Any = None, status: Any = None, **more: Any) -> Object:
    """An object as an API server gives it."""
    metadata: Object = {
        "name": name, "uid": f"u-{name}", "resourceVersion": "17", "generation": 2,
        "creationTimestamp": NOON, "labels": {"a": "b", **more.pop("labels", {})},
        "annotations": {"c": "d", **more.pop("annotations", {})}, **more.pop("metadata", {}),
    }  # fmt: skip
    if kind.namespaced:
        metadata["namespace"] = "team-a"
    made: Object = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        **more,
    }
    if spec is not None:
        made["spec"] = spec
    if status is not None:
        made["status"] = status
    return made


def condition(type_: str, status: str = "True", reason: str = "Because") -> Object:
    """A condition."""
    return {
        "type": type_, "status": status, "reason": reason, "message": "m", "lastTransitionTime": NOON,
        "observedGeneration": 1,
    }  # fmt: skip


REQUESTS: Final = {"cpu": "500m", "memory": "1Gi", "example.com/gpu": "1"}
AFFINITY: Final = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
            ]
        }
    }
}
POD: Final = {
    "restartPolicy": "Never",
    "priorityClassName": "low",
    "runtimeClassName": "kata",
    "overhead": {"cpu": "10m"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}],
    "affinity": AFFINITY,
    "initContainers": [
        {"name": "i", "image": "x", "restartPolicy": "Always", "resources": {"requests": REQUESTS}}
    ],
    "containers": [
        {"name": "c", "image": "x", "resources": {"requests": REQUESTS, "limits": {"cpu": "1"}}}
    ],
    "resources": {"requests": {"cpu": "1"}},
    "resourceClaims": [{"name": "r", "resourceClaimTemplateName": "t"}],
    "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
}
TEMPLATE: Final = {
    "metadata": {"labels": {"app": "a"}, "annotations": {"x": "y"}},
    "spec": POD,
}
QUEUED: Final = {
    "kueue.x-k8s.io/queue-name": "main",
    "kueue.x-k8s.io/priority-class": "high",
    "kueue.x-k8s.io/max-exec-time-seconds": "600",
}
ASKS: Final = {
    "kueue.konflux-ci.dev/requests-cpu": "2",
    "kueue.konflux-ci.dev/requests-linux-arm64": "1",
    "kueue.x-k8s.io/job-min-parallelism": "1",
    "kueue.x-k8s.io/podset-required-topology": "rack",
    "sluicegate.dev/requests-applied": '{"cpu":["2","1"]}',
    "sluicegate.dev/coschedule": "preferred",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}
OWNER: Final = {
    "apiVersion": "batch/v1", "kind": "Job", "name": "o", "uid": "u-o", "controller": True,
    "blockOwnerDeletion": True,
}  # fmt: skip

JOB: Final = obj(
    kinds.JOB, "train", labels=QUEUED, annotations=ASKS,
    metadata={"ownerReferences": [OWNER], "finalizers": ["a/b"]},
    spec={
        "suspend": True, "parallelism": 3, "completions": 3, "backoffLimit": 6, "completionMode": "Indexed",
        "managedBy": "kubernetes.io/job-controller", "template": TEMPLATE,
        "activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 60,
    },
    status={
        "active": 1, "ready": 1, "succeeded": 1, "failed": 1, "terminating": 0, "startTime": NOON,
        "completionTime": NOON, "uncountedTerminatedPods": {"succeeded": ["u"]},
        "conditions": [condition("Complete"), condition("Suspended", "False")],
    },
)  # fmt: skip
JOBSET: Final = obj(
    JOB_SET, "set", labels=QUEUED, annotations=ASKS,
    spec={
        "suspend": True, "managedBy": "jobset.sigs.k8s.io/jobset-controller",
        "replicatedJobs": [
            {"name": "leader", "replicas": 1, "template": {"spec": {"parallelism": 2, "template": TEMPLATE}}}
        ],
    },
    status={
        "conditions": [condition("Completed", "False")],
        "replicatedJobsStatus": [{"name": "leader", "ready": 1, "succeeded": 0, "active": 1}],
    },
)  # fmt: skip
PIPELINE: Final = {
    "params": [{"name": "p", "type": "string", "default": "x"}],
    "workspaces": [{"name": "w", "optional": True}],
    "results": [{"name": "r", "value": "$(tasks.build.results.r)"}],
    "tasks": [
        {
            "name": "build", "taskRef": {"name": "t", "kind": "Task"}, "runAfter": ["clone"],
            "params": [{"name": "PLATFORM", "value": "linux/arm64"}, {"name": "x", "value": ["a", "b"]}],
            "matrix": {"params": [{"name": "PLATFORM", "value": ["linux/arm64", "linux/s390x"]}]},
            "when": [{"input": "$(params.p)", "operator": "in", "values": ["x"]}],
            "workspaces": [{"name": "w", "workspace": "w"}], "timeout": "1h0m0s", "retries": 2,
        },
        {"name": "clone", "taskSpec": {"steps": [{"name": "s", "image": "x", "script": "true"}]}},
    ],
    "finally": [{"name": "end", "taskRef": {"name": "t"},
                 "params": [{"name": "s", "value": "$(tasks.status)"}]}],
}  # fmt: skip
RUN: Final = obj(
    kinds.PIPELINE_RUN, "run", labels=QUEUED, annotations=ASKS,
    spec={
        "status": "PipelineRunPending", "pipelineSpec": PIPELINE,
        "params": [{"name": "p", "value": "v"}, {"name": "build-platforms", "value": ["linux/arm64"]}],
        "timeouts": {"pipeline": "1h", "tasks": "30m", "finally": "10m"},
        "taskRunTemplate": {"serviceAccountName": "s", "podTemplate": {"nodeSelector": {"a": "b"}}},
        "taskRunSpecs": [{"pipelineTaskName": "build", "computeResources": {"requests": {"cpu": "1"}}}],
        "workspaces": [{"name": "w", "emptyDir": {}}],
    },
    status={
        "startTime": NOON, "completionTime": NOON,
        "conditions": [condition("Succeeded", "Unknown", "Running")],
        "childReferences": [{"name": "c", "kind": "TaskRun", "pipelineTaskName": "build"}],
        "pipelineSpec": PIPELINE,
    },
)  # fmt: skip
RUN_BY_NAME: Final = {**RUN, "spec": {"pipelineRef": {"name": "build"}, "status": None}}
TASK_RUN: Final = obj(
    kinds.TASK_RUN, "task", annotations={"build.appstudio.redhat.com/failed-hosts": "a,b"},
    metadata={"ownerReferences": [{**OWNER, "apiVersion": "tekton.dev/v1", "kind": "PipelineRun"}]},
    spec={
        "params": [{"name": "PLATFORM", "value": "linux/arm64"}],
        "taskSpec": {"steps": [{"name": "s", "image": "x"}]},
    },
    status={
        "taskSpec": {"volumes": [{"name": "ssh", "secret": {"secretName": "multi-platform-ssh-task"}}]},
        "conditions": [condition("Succeeded", "Unknown", "Running")], "podName": "p",
    },
)  # fmt: skip
WORKLOAD: Final = obj(
    kinds.WORKLOAD, "job-train", labels={"kueue.x-k8s.io/job-uid": "u-train"},
    metadata={"ownerReferences": [OWNER], "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
    spec={
        "active": True, "queueName": "main", "priority": 100, "priorityClassName": "high",
        "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
        "maximumExecutionTimeSeconds": 60,
        "podSets": [{"name": "main", "count": 3, "minCount": 1, "template": TEMPLATE,
                     "topologyRequest": {"required": "rack"}}],
    },
    status={
        "conditions": [condition("QuotaReserved"), condition("Admitted"), condition("Evicted", "False"),
                       condition("PodsReady"), condition("Requeued"), condition("Finished", "False")],
        "admission": {
            "clusterQueue": "pool",
            "podSetAssignments": [{"name": "main", "count": 3, "flavors": {"cpu": "default"},
                                   "resourceUsage": {"cpu": "1500m"}}],
        },
        "requeueState": {"count": 2, "requeueAt": NOON},
        "admissionChecks": [{"name": "machines", "state": "Ready", "message": "", "lastTransitionTime": NOON,
                             "podSetUpdates": [{"name": "main", "nodeSelector": {"a": "b"}}]}],
        "reclaimablePods": [{"name": "main", "count": 1}],
        "accumulatedPastExecutionTimeSeconds": 5, "clusterName": "west", "nominatedClusterNames": ["west"],
        "schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]},
        "resourceRequests": [{"name": "main", "resources": {"cpu": "1500m"}}],
    },
)  # fmt: skip
_QUOTA = {"name": "cpu", "nominalQuota": "9", "borrowingLimit": "1", "lendingLimit": "1"}
GROUPS: Final = [
    {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [_QUOTA]}]}
]
SELECTOR: Final = {
    "matchLabels": {"a": "b"},
    "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
}
CLUSTER_QUEUE: Final = obj(
    kinds.CLUSTER_QUEUE, "pool",
    spec={
        "resourceGroups": GROUPS, "cohortName": "all", "queueingStrategy": "StrictFIFO",
        "namespaceSelector": SELECTOR, "stopPolicy": "None",
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor",
                              "preference": "BorrowingOverPreemption"},
        "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any",
                       "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 5}},
        "admissionChecksStrategy": {"admissionChecks": [{"name": "machines", "onFlavors": ["default"]}]},
        "fairSharing": {"weight": "1500m"},
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
    },
    status={"conditions": [condition("Active")], "pendingWorkloads": 1, "flavorsUsage": [
        {"name": "default", "resources": [{"name": "cpu", "total": "1", "borrowed": "0"}]}]},
)  # fmt: skip
CLUSTER_QUEUE_V1: Final = {
    **CLUSTER_QUEUE,
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "spec": {**CLUSTER_QUEUE["spec"], "cohort": "all", "admissionChecks": ["machines"]},
}
LOCAL_QUEUE: Final = obj(
    kinds.LOCAL_QUEUE, "main", annotations={"kueue.x-k8s.io/default-priority": "10"},
    spec={"clusterQueue": "pool", "stopPolicy": "None", "fairSharing": {"weight": "1"}},
    status={"fairSharing": {"admissionFairSharingStatus": {
        "lastUpdate": NOON, "consumedResources": {"cpu": "1500m"}}}, "conditions": [condition("Active")]},
)  # fmt: skip
FLAVOR: Final = obj(
    kinds.RESOURCE_FLAVOR, "default", labels={"sluicegate.dev/spoke": "west"},
    spec={
        "nodeLabels": {"zone": "a"}, "topologyName": "racks",
        "nodeTaints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}],
        "tolerations": [
            {"key": "spot", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}],
    },
)  # fmt: skip
COHORT: Final = obj(
    kinds.COHORT,
    "all",
    spec={"parentName": "root", "resourceGroups": GROUPS, "fairSharing": {"weight": "1"}},
)
CHECK: Final = obj(
    kinds.ADMISSION_CHECK, "machines",
    annotations={"sluicegate.dev/windows": "0 22 * * 1-5 for 8h",
                 "sluicegate.dev/time-zone": "Europe/Berlin"},
    spec={"controllerName": "kueue.x-k8s.io/multikueue",
          "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "c"}},
    status={"conditions": [condition("Active")]},
)  # fmt: skip
WINDOW_CHECK: Final = {**CHECK, "spec": {"controllerName": "sluicegate.dev/window"}}
MACHINE_CHECK: Final = {**CHECK, "spec": {"controllerName": "sluicegate.dev/machines"}}
PRIORITY: Final = obj(kinds.WORKLOAD_PRIORITY_CLASS, "high", value=100, description="d")
POD_PRIORITY: Final = obj(
    kinds.PRIORITY_CLASS, "low", value=-5, globalDefault=True, preemptionPolicy="Never"
)
RUNTIME: Final = obj(
    kinds.RUNTIME_CLASS,
    "kata",
    handler="kata",
    overhead={"podFixed": {"cpu": "100m"}},
    scheduling={
        "nodeSelector": {"kata": "true"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
    },
)
LIMITS: Final = obj(
    kinds.LIMIT_RANGE, "limits",
    spec={"limits": [
        {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"},
         "max": {"cpu": "4"}, "min": {"cpu": "1m"}, "maxLimitRequestRatio": {"cpu": "10"}},
        {"type": "Pod", "max": {"memory": "1Ti"}},
    ]},
)  # fmt: skip
NAMESPACE: Final = obj(
    kinds.NAMESPACE, "team-a", spec={"finalizers": ["kubernetes"]}, status={"phase": "Active"}
)
TOPOLOGY: Final = obj(kinds.TOPOLOGY, "racks", spec={"levels": [{"nodeLabel": "rack"}]})
MULTIKUEUE: Final = obj(kinds.MULTIKUEUE_CONFIG, "c", spec={"clusters": ["west", "east"]})
SPOKE: Final = obj(
    kinds.MULTIKUEUE_CLUSTER, "west", annotations={"sluicegate.dev/lost": "burnt"},
    spec={"clusterSource": {"kubeConfig": {"location": "s", "locationType": "Secret"}}},
    status={"conditions": [condition("Active")]},
)  # fmt: skip
HOSTS: Final = {
    "local-platforms": "linux/x86_64,local,localhost",
    "dynamic-platforms": "linux/arm64",
    "instance-tag": "prod",
    "additional-instance-tags": "a=b,c=d",
    "dynamic.linux-arm64.type": "fake",
    "dynamic.linux-arm64.max-instances": "10",
    "dynamic.linux-arm64.check-interval": "1",
    "dynamic.linux-arm64.allocation-timeout": "600",
    "dynamic.linux-arm64.ssh-secret": "keys",
    "dynamic-pool-platforms": "linux/s390x",
    "dynamic.linux-s390x.type": "aws",
    "dynamic.linux-s390x.max-instances": "3",
    "dynamic.linux-s390x.concurrency": "4",
    "dynamic.linux-s390x.max-age": "60",
    "dynamic.linux-s390x.region": "us-east-1",
    "dynamic.linux-s390x.ami": "ami-1",
    "dynamic.linux-s390x.instance-type": "m6g.large",
    "dynamic.linux-s390x.disk": "40",
    "dynamic.linux-s390x.iops": "3000",
    "host.power.example.com.address": "10.0.0.1",
    "host.power.example.com.platform": "linux/ppc64le",
    "host.power.example.com.user": "root",
    "host.power.example.com.secret": "power-keys",
    "host.power.example.com.concurrency": "8",
}
HOST_CONFIG: Final = obj(
    kinds.CONFIG_MAP, "host-config", data=HOSTS, metadata={"namespace": "machines"}
)
INTEGRATION: Final = obj(
    kinds.INTEGRATION, "gadgets",
    spec={
        "kind": {"group": "example.com", "version": "v1", "kind": "Gadget", "plural": "gadgets"},
        "held": "has(object.spec.suspend) && object.spec.suspend",
    },
)  # fmt: skip
GADGET: Final = obj(
    Kind(group="example.com", version="v1", plural="gadgets", kind="Gadget"),
    "gadget",
    labels=QUEUED,
    spec={"suspend": True},
)

ALL: Final[dict[Kind, tuple[Object, ...]]] = {
    kinds.NAMESPACE: (NAMESPACE,),
    kinds.RESOURCE_FLAVOR: (FLAVOR,),
    kinds.COHORT: (COHORT,),
    kinds.ADMISSION_CHECK: (CHECK, WINDOW_CHECK, MACHINE_CHECK),
    kinds.CLUSTER_QUEUE: (CLUSTER_QUEUE, CLUSTER_QUEUE_V1),
    kinds.LOCAL_QUEUE: (LOCAL_QUEUE,),
    kinds.LIMIT_RANGE: (LIMITS,),
    kinds.RUNTIME_CLASS: (RUNTIME,),
    kinds.PRIORITY_CLASS: (POD_PRIORITY,),
    kinds.WORKLOAD_PRIORITY_CLASS: (PRIORITY,),
    kinds.TOPOLOGY: (TOPOLOGY,),
    kinds.MULTIKUEUE_CONFIG: (MULTIKUEUE,),
    kinds.MULTIKUEUE_CLUSTER: (SPOKE,),
    kinds.INTEGRATION: (INTEGRATION,),
    kinds.CONFIG_MAP: (HOST_CONFIG,),
    kinds.WORKLOAD: (WORKLOAD,),
    kinds.JOB: (JOB,),
    JOB_SET: (JOBSET,),
    kinds.PIPELINE_RUN: (RUN, RUN_BY_NAME),
    kinds.TASK_RUN: (TASK_RUN,),
}
"""Kinds and samples, in an order in which each refers to those before it."""
