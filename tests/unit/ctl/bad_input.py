"""Bad input of `sluice plan` and `sluice simulate`, and how a case of bad input is written down."""

from dataclasses import dataclass
from typing import Any, Final

from shared.runtime.command import Exit
from tests.unit.ctl.whatif_objects import cluster_queue, job

QUEUE = "kueue.x-k8s.io/queue-name"

NO_SERVER = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
users: [{name: u, user: {}}]
"""
"""A kubeconfig of an API server that does not run."""


@dataclass(frozen=True, kw_only=True)
class Case:
    arguments: tuple[str, ...]
    """``{state}`` stands for a folder with a queue of 4 CPUs, ``{file}`` for the file, ``{folder}`` for its
    folder."""

    says: tuple[str, ...]
    """In this order, in one of the lines of the output each."""

    status: Exit = Exit.WRONG_INPUT
    objects: tuple[dict[str, Any], ...] = ()
    text: str | None = None


def requesting(**requests: str) -> dict[str, Any]:
    obj = job("one", 1)
    obj["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = requests
    return obj


def with_spec(**fields: Any) -> dict[str, Any]:
    obj = job("one", 1)
    obj["spec"] |= fields
    return obj


def queued(name: str, namespace: str = "team") -> dict[str, Any]:
    obj = job("one", 1)
    obj["metadata"]["labels"][QUEUE] = name
    obj["metadata"]["namespace"] = namespace
    return obj


def limited(**limits: Any) -> dict[str, Any]:
    queue = cluster_queue(4)
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0] |= limits
    return queue


def planned(*objects: dict[str, Any], says: tuple[str, ...], status: Exit = Exit.NO_PLAN) -> Case:
    arguments = ("plan", "--state", "{state}", "-f", "{file}")
    return Case(arguments=arguments, objects=objects, says=says, status=status)


def cohort(name: str, parent: str) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Cohort",
        "metadata": {"name": name},
        "spec": {"parentName": parent},
    }


def with_flavors(*names: str) -> dict[str, Any]:
    queue = cluster_queue(4)
    [flavor] = queue["spec"]["resourceGroups"][0]["flavors"]
    queue["spec"]["resourceGroups"][0]["flavors"] = [{**flavor, "name": name} for name in names]
    return queue


def local_queue(target: str) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "other", "namespace": "team"},
        "spec": {"clusterQueue": target},
    }


def said(*arguments: str, says: tuple[str, ...]) -> Case:
    return Case(arguments=arguments, says=says)


def installed(kubeconfig: str, *says: str) -> Case:
    return Case(arguments=("install", "--kubeconfig", "{file}"), text=kubeconfig, says=says)


SELECTOR = {"matchExpressions": [{"key": "team", "operator": "Is"}]}
QUOTA = "spec.resourceGroups[0].flavors[0].resources[0]"
REQUEST = "spec.template.spec.containers[0].resources.requests"

PLANNED: Final[dict[str, Case]] = {
    "a typo in the name of a queue": planned(
        queued("qq"),
        says=(f"Job team/one would wait forever: label {QUEUE}: 'qq'", "did you mean 'q'?"),
        status=Exit.FAILED,
    ),
    "a queue that is like none": planned(
        queued("zzzz"),
        says=("'zzzz': namespace team has no such LocalQueue; there are q",),
        status=Exit.FAILED,
    ),
    "a namespace without queues": planned(
        queued("q", "elsewhere"),
        says=("'q': namespace elsewhere has no such LocalQueue; there is none at all",),
        status=Exit.FAILED,
    ),
    "more CPUs than the queue will ever have": planned(
        requesting(cpu="500"),
        says=(
            "Job team/one would wait forever: ",
            "(500) > maximum capacity (4)",
            "raise the quota of cpu in flavor f above 4, or ask for less",
        ),
        status=Exit.FAILED,
    ),
    "a resource that no flavor has": planned(
        requesting(**{"example.com/gpu": "1"}),
        says=("Job team/one would wait forever: ", "example.com/gpu"),
        status=Exit.FAILED,
    ),
    "a priority class that is not there": planned(
        job("one", 1, "urgent"),
        says=(
            "label kueue.x-k8s.io/priority-class: 'urgent': there is no such WorkloadPriorityClass; ",
        ),
        status=Exit.FAILED,
    ),
    "a number in words": planned(
        with_spec(parallelism="two"),
        says=("spec.parallelism: must be a whole number from 0 to 2147483647, got 'two'",),
    ),
    "fewer pods than none": planned(
        with_spec(completions=-1),
        says=("spec.completions: must be a whole number from 0 to 2147483647, got -1",),
    ),
    "more pods than a Job can have": planned(
        with_spec(parallelism=3_000_000_000),
        says=("spec.parallelism: must be a whole number from 0 to 2147483647, got 3000000000",),
    ),
    "a Job without a container": planned(
        with_spec(template={"spec": {"restartPolicy": "Never", "containers": []}}),
        says=("spec.template.spec.containers: must list at least one container",),
    ),
    "a quantity with a unit in words": planned(
        requesting(cpu="1 cpu"),
        says=(f"{REQUEST}.cpu: '1 cpu' is no quantity", "write a quantity such as 1, 500m or 2Gi"),
    ),
    "a quantity with a wrong suffix": planned(
        requesting(memory="2GB"), says=(f"{REQUEST}.memory: '2GB' is no quantity",)
    ),
    "a negative request": planned(
        requesting(cpu="-1"), says=(f"{REQUEST}.cpu: '-1': must not be negative",)
    ),
    "a typo in a job, simulated": Case(
        arguments=("simulate", "--state", "{state}", "-f", "{file}"),
        objects=(queued("qq"),),
        says=("did you mean 'q'?", "simulate: "),
        status=Exit.FAILED,
    ),
    "a bad quantity, simulated": Case(
        arguments=("simulate", "--state", "{state}", "-f", "{file}"),
        objects=(requesting(cpu="1 cpu"),),
        says=(f"{REQUEST}.cpu: '1 cpu' is no quantity",),
    ),
    "a negative quota": planned(limited(nominalQuota=-4), says=("nominalQuota", "-4")),
    "a quota that is no quantity": planned(
        limited(nominalQuota="4 cpus"), says=("nominalQuota", "4 cpus")
    ),
    "a queueing strategy that does not exist": planned(
        cluster_queue(4, queueingStrategy="Fast"), says=("queueingStrategy", "Fast")
    ),
    "borrowing without a cohort": planned(
        limited(borrowingLimit=2),
        says=(
            f"ClusterQueue cq: {QUOTA}.borrowingLimit: ",
            '"2": must be nil when cohort is empty',
        ),
    ),
    "lending without a cohort": planned(
        limited(lendingLimit=2), says=(f"{QUOTA}.lendingLimit: ", '"2": must be nil when cohort')
    ),
    "lending more than there is": planned(
        {**limited(lendingLimit=9), "spec": {**limited(lendingLimit=9)["spec"], "cohortName": "a"}},
        says=(f"{QUOTA}.lendingLimit: ", '"9": must be less than or equal to the nominalQuota'),
    ),
    "a cycle of cohorts": planned(
        *(cohort("a", "b"), cohort("b", "a"), cluster_queue(4, cohortName="a")),
        says=(
            "! ClusterQueue cq would admit nothing: ",
            "cohort a is part of a cycle; give one Cohort of the cycle another spec.parentName, or none",
        ),
        status=Exit.FAILED,
    ),
    "a flavor that is not there": planned(
        with_flavors("ff"),
        says=(
            "spec.resourceGroups[0].flavors[0].name: 'ff': there is no such ResourceFlavor; ",
            "did you mean 'f'?",
        ),
        status=Exit.FAILED,
    ),
    "a flavor twice": planned(
        with_flavors("f", "f"), says=("ClusterQueue cq: spec.resourceGroups[0].flavors", '"f"')
    ),
    "an admission check that is not there": planned(
        cluster_queue(4, admissionChecksStrategy={"admissionChecks": [{"name": "scan"}]}),
        says=(
            "! ClusterQueue cq would admit nothing: ",
            "'scan': there is no such AdmissionCheck; ",
        ),
        status=Exit.FAILED,
    ),
    "a LocalQueue without its ClusterQueue": planned(
        local_queue("c"),
        says=(
            "! LocalQueue team/other would admit nothing: ",
            "spec.clusterQueue: 'c': there is no such ClusterQueue; did you mean 'cq'?",
        ),
        status=Exit.FAILED,
    ),
    "a version that Kueue does not have": planned(
        {**cluster_queue(4), "apiVersion": "kueue.x-k8s.io/v1"},
        says=("config.yaml: ClusterQueue cq: apiVersion: ", "kueue.x-k8s.io/v1"),
    ),
    "a label that is a number": planned(
        {**job("one", 1), "metadata": {"name": "one", "namespace": "team", "labels": {QUEUE: 5}}},
        says=(f"config.yaml: metadata.labels[{QUEUE}]: must be a string, got 5; quote it",),
    ),
    "labels that are a list": planned(
        {**job("one", 1), "metadata": {"name": "one", "namespace": "team", "labels": [QUEUE]}},
        says=("config.yaml: metadata.labels: must be an object, got [",),
    ),
    "a typo in a field": planned(
        limited(nominalQuotas=3),
        says=(
            f"ClusterQueue cq: {QUOTA}.nominalQuotas: ClusterQueue has no such field",
            "`kubectl explain clusterqueues.spec.resourceGroups.flavors.resources` lists the fields",
        ),
    ),
    "a typo in a field of a job": planned(
        {**job("one", 1), "spec": {**job("one", 1)["spec"], "paralellism": 2}},
        says=("Job team/one: spec.paralellism: Job has no such field", "kubectl explain jobs.spec"),
    ),
    "a preemption policy that does not exist": planned(
        cluster_queue(4, preemption={"withinClusterQueue": "Always"}),
        says=("spec.preemption.withinClusterQueue: ", '"Always"', "LowerPriority"),
    ),
    "a selector with an operator that does not exist": planned(
        cluster_queue(4, namespaceSelector=SELECTOR),
        says=("spec.namespaceSelector.matchExpressions[0].operator: ", '"Is"'),
    ),
    "a name that Kubernetes refuses": planned(
        {**cluster_queue(4), "metadata": {"name": "My_Queue"}},
        says=("metadata.name: ", '"My_Queue": must be a lowercase RFC 1123 subdomain'),
    ),
}


INSTALLED: Final = {
    "a time without an end": said(
        *("install", "--wait-seconds", "inf"), says=("inf is not a number that can be used here",)
    ),
    "a webhook that no API server would call": said(
        *("install", "--webhook-url", "http://classifier:9443", "--kubeconfig", "nofile"),
        says=("--webhook-url: 'http://classifier:9443' is no https URL of a server",),
    ),
    "a webhook with an address that ends in between": said(
        *("install", "--webhook-url", "https://[::1", "--kubeconfig", "nofile"),
        says=("--webhook-url: 'https://[::1' is no https URL of a server",),
    ),
    "a webhook with a password in its address": said(
        *("install", "--webhook-url", "https://u:p@classifier", "--kubeconfig", "nofile"),
        says=("--webhook-url: ", "is no https URL of a server"),
    ),
    "a webhook without an authority": said(
        *("install", "--webhook-url", "https://classifier:9443", "--kubeconfig", "nofile"),
        says=("--webhook-url: needs --authority FILE: the CA of the classifier",),
    ),
}
"""Of `sluice install`."""

STARTED: Final = {
    "a port that no machine has": said(
        *("run", "simulator", "--port", "99999"),
        says=("sluice run simulator: error: argument --port: '99999' is no port: 0 to 65535",),
    ),
    "time that goes at no speed": said(
        *("run", "simulator", "--speed", "nan"),
        says=("argument --speed: 'nan' is no speed: a number above 0",),
    ),
    "a folder that cannot be made, to watch a load": said(
        *("demo", "--directory", "/proc/x"),
        says=(
            "demo: failed: /proc/x: no such file or directory; choose another folder with --directory\n",
        ),
    ),
    "cases that are not there": said(
        *("demo", "--pipelineruns", "nofile"),
        says=("sluice: nofile: there is no such file or folder",),
    ),
    "more spokes than a load is sent to": said(
        *("demo", "--spokes", "21"), says=("'--spokes': 21 is not in the range 0<=x<=20",)
    ),
    "a hub without an address": said(
        *("bus", "leaf", "nonsense"), says=("sluice: nonsense: is no URL of a server", "tls://")
    ),
    "a key that is none, for a leaf node": Case(
        arguments=("bus", "leaf", "tls://hub:7422", "--key", "{file}"),
        text="garbage",
        says=("sluice: --key: ", "not the seed of an nkey"),
    ),
}
"""Of programs that go on running, and of their configuration."""
