"""AppWrappers with objects of many kinds inside."""

from typing import Any, Final

from shared.contracts.kube.kinds import Object
from tests.unit.integrations.ml_kinds import created, template

VERSION: Final = "workload.codeflare.dev/v1beta2"


def component(
    api_version: str,
    kind: str,
    *,
    declared: Any = None,
    metadata: Object | None = None,
    **fields: Any,
) -> Object:
    """What wraps one object; `fields` are those of the object, `declared` its pod sets."""
    inner = {"apiVersion": api_version, "kind": kind, "metadata": metadata or {}, **fields}
    return {"template": inner, **({} if declared is None else {"podSets": declared})}


def wrapper(*components: Object) -> Object:
    """An AppWrapper that was just created."""
    return created(VERSION, "AppWrapper", components=list(components))


def job(cpu: str = "1", **spec: Any) -> Object:
    return component("batch/v1", "Job", spec={"template": template(cpu), **spec})


def maker(api_version: str, kind: str) -> Object:
    """An object that makes pods, of which less is declared than it makes."""
    return component(
        api_version,
        kind,
        declared=[{"path": "template.spec.template", "replicas": 1}],
        spec={"replicas": 50, "template": template("1")},
    )


def crew(cpu: str = "1", *, declared: Any) -> Object:
    """An object of a kind without an Integration."""
    return component(
        "example.com/v1",
        "Crew",
        declared=declared,
        spec={"crews": [{"template": template(cpu)}, {"template": template(cpu)}]},
    )


CREW: Final = "template.spec.crews[0].template"
SERVICE: Final = component("v1", "Service", spec={"ports": []})
_RAY: Final = {
    "headGroupSpec": {"template": template("1")},
    "workerGroupSpecs": [{"groupName": "w", "replicas": 3, "template": template("2")}],
}

INFERRED: Final[dict[str, tuple[Object, list[tuple[int, str]]]]] = {
    "a Job": (job("2", parallelism=3, completions=2), [(2, "2")]),
    "a Job that says nothing": (job("2"), [(1, "2")]),
    "a JobSet": (
        component(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            spec={
                "replicatedJobs": [
                    {
                        "name": "a",
                        "replicas": 2,
                        "template": {"spec": {"parallelism": 3, "template": template("1")}},
                    },
                    {
                        "name": "b",
                        "template": {
                            "spec": {
                                "parallelism": 3,
                                "completions": 1,
                                "template": template("2"),
                            }
                        },
                    },
                ]
            },
        ),
        [(6, "1"), (1, "2")],
    ),
    "a PyTorchJob": (
        component(
            "kubeflow.org/v1",
            "PyTorchJob",
            spec={
                "pytorchReplicaSpecs": {
                    "Worker": {"replicas": 4, "template": template("2")},
                    "Master": {"template": template("1")},
                }
            },
        ),
        [(1, "1"), (4, "2")],
    ),
    "a RayCluster": (
        component("ray.io/v1", "RayCluster", spec=_RAY),
        [(1, "1"), (3, "2")],
    ),
    "a RayJob, whose submitter comes last": (
        component(
            "ray.io/v1",
            "RayJob",
            spec={"rayClusterSpec": _RAY, "shutdownAfterJobFinishes": True},
        ),
        [(1, "1"), (3, "2"), (1, "500m")],
    ),
    "a Pod": (component("v1", "Pod", **template("3")), [(1, "3")]),
    "a Deployment": (
        component("apps/v1", "Deployment", spec={"replicas": 2, "template": template("1")}),
        [(2, "1")],
    ),
    "a StatefulSet": (
        component("apps/v1", "StatefulSet", spec={"template": template("1")}),
        [(1, "1")],
    ),
    "a LeaderWorkerSet, whose leaders come last": (
        component(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            spec={
                "replicas": 2,
                "leaderWorkerTemplate": {
                    "size": 3,
                    "leaderTemplate": template("100"),
                    "workerTemplate": template("1"),
                },
            },
        ),
        [(4, "1"), (2, "100")],
    ),
    "a Pod that names a controller": (
        component(
            "v1",
            "Pod",
            metadata={"ownerReferences": [{"kind": "TaskRun", "controller": True}]},
            **template("3"),
        ),
        [(1, "3")],
    ),
    "what makes no pods": (SERVICE, []),
    "a kind that nobody reads": (crew(declared=None), []),
}
"""Number of pods and cpu of each pod set: kubernetes-sigs/kueue@ff69552
vendor/github.com/project-codeflare/appwrapper/pkg/utils/utils.go, `InferPodSets`. It reads neither hosts of
Ray's workers nor the submitter of a RayJob, which run on the AppWrapper's quota all the same."""

WRONG: Final[dict[str, tuple[Object, str]]] = {
    "a field that is not there": (
        crew(declared=[{"path": "template.spec.tmpl"}]),
        "podSets[0].path: 'template.spec.tmpl': template.spec has no 'tmpl'",
    ),
    "a place that the list does not have": (
        crew(declared=[{"path": "template.spec.crews[2].template"}]),
        "podSets[0].path: 'template.spec.crews[2].template': template.spec.crews is a list of 2, which has",
    ),
    "a name in a list": (
        crew(declared=[{"path": "template.spec.crews.x"}]),
        "podSets[0].path: 'template.spec.crews.x': template.spec.crews is a list of 2, which has no 'x'",
    ),
    "a field of a text": (
        crew(declared=[{"path": "template.kind.x"}]),
        "podSets[0].path: 'template.kind.x': template.kind is a text, which has no 'x'",
    ),
    "a place that is no number": (
        crew(declared=[{"path": "template.spec.crews[a]"}]),
        "podSets[0].path: 'template.spec.crews[a]': after 'template.spec.crews' must come .name of a",
    ),
    "a bracket that is not closed": (
        crew(declared=[{"path": "template.spec.crews[0"}]),
        "podSets[0].path: 'template.spec.crews[0': after 'template.spec.crews'",
    ),
    "a place below nothing": (
        crew(declared=[{"path": "[0]"}]),
        "podSets[0].path: '[0]': must begin with the name of a field",
    ),
    "what is no map": (
        crew(declared=[{"path": "template.spec.crews"}]),
        "podSets[0].path: 'template.spec.crews': is a list, not a map",
    ),
    "what is no template": (
        crew(declared=[{"path": "template.spec"}]),
        "podSets[0].path: 'template.spec': is no pod template: it has no spec",
    ),
    "something outside of the object": (
        {**crew(declared=[{"path": "other"}]), "other": template("1")},
        "podSets[0].path: 'other': must begin with template",
    ),
    "no path": (
        crew(declared=[{"replicas": 2}]),
        "podSets[0].path: must be a text that says where the pod template is",
    ),
    "a path that is too long": (
        crew(declared=[{"path": "template" + ".a" * 300}]),
        "podSets[0].path: 'template.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a'…: must have at most 512 characters",
    ),
    "the same path twice": (
        crew(declared=[{"path": CREW}, {"path": CREW}]),
        f"podSets[1].path: {CREW!r}: is said twice",
    ),
    "a number of pods that is none": (
        crew(declared=[{"path": CREW, "replicas": -1}]),
        "podSets[0].replicas: -1: must be a number of pods",
    ),
    "an entry that is no map": (crew(declared=["x"]), "podSets[0]: must be a map"),
    "pod sets that are no list": (crew(declared={"a": {}}), "podSets: must be a list"),
    "no object": ({"podSets": []}, "template: must be an object"),
    "an AppWrapper": (
        component(VERSION, "AppWrapper", spec={"components": []}),
        "template.kind: 'AppWrapper': its pods are not in it but in other objects",
    ),
    "a ReplicaSet of apps/v1, whatever is declared": (
        maker("apps/v1", "ReplicaSet"),
        "template.kind: 'ReplicaSet': its pods are not counted inside another object",
    ),
    "a ReplicationController of v1, whatever is declared": (
        maker("v1", "ReplicationController"),
        "template.kind: 'ReplicationController': its pods are not counted inside another object",
    ),
    "a DaemonSet of apps/v1, whatever is declared": (
        maker("apps/v1", "DaemonSet"),
        "template.kind: 'DaemonSet': its pods are not counted inside another object",
    ),
    "a CronJob of batch/v1, whatever is declared": (
        maker("batch/v1", "CronJob"),
        "template.kind: 'CronJob': its pods are not counted inside another object",
    ),
    "a CronJob of batch/v1beta1, whatever is declared": (
        maker("batch/v1beta1", "CronJob"),
        "template.kind: 'CronJob': its pods are not counted inside another object",
    ),
    "a RayCronJob of ray.io/v1, whatever is declared": (
        maker("ray.io/v1", "RayCronJob"),
        "template.kind: 'RayCronJob': its pods are not counted inside another object",
    ),
    "a ScheduledSparkApplication of sparkoperator.k8s.io/v1beta2, whatever is declared": (
        maker("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication"),
        "template.kind: 'ScheduledSparkApplication': its pods are not counted inside another object",
    ),
    "a CronWorkflow of argoproj.io/v1alpha1, whatever is declared": (
        maker("argoproj.io/v1alpha1", "CronWorkflow"),
        "template.kind: 'CronWorkflow': its pods are not counted inside another object",
    ),
    "a Job of another version than is read": (
        maker("batch/v1beta1", "Job"),
        "template.apiVersion: 'batch/v1beta1': its pods are read only in version batch/v1",
    ),
    "an AppWrapper of another version": (
        maker("workload.codeflare.dev/v1beta1", "AppWrapper"),
        "template.apiVersion: 'workload.codeflare.dev/v1beta1': its pods are read only in version workload",
    ),
    "a kind that is a list": (
        {**maker("apps/v1", "ReplicaSet"), "template": {"apiVersion": "apps/v1", "kind": ["Job"]}},
        "podSets[0].path: 'template.spec.template': template has no 'spec'",
    ),
    "an object that its own Integration cannot read": (
        component("batch/v1", "Job", spec={"parallelism": "many", "template": template("1")}),
        "template: Integration jobs.batch: spec.ready: no such overload: _>=_(int, string)",
    ),
    "an object that its own Integration refuses": (
        component("ray.io/v1", "RayCluster", spec={**_RAY, "enableInTreeAutoscaling": True}),
        "template.spec.enableInTreeAutoscaling: true: an autoscaler takes pods that nobody admitted",
    ),
}
"""A component, and why an AppWrapper with it is refused; the text goes on from the component's own path."""
