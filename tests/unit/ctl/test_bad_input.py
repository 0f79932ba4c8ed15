"""What a user may get wrong: each message names object, field and value, and what to do."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.runtime.command import Exit
from tests.unit.ctl.whatif_objects import CONFIGURATION_KINDS, Sluice, cluster_queue, job

QUEUE = "kueue.x-k8s.io/queue-name"


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


SELECTOR = {"matchExpressions": [{"key": "team", "operator": "Is"}]}
QUOTA = "spec.resourceGroups[0].flavors[0].resources[0]"
REQUEST = "spec.template.spec.containers[0].resources.requests"

CASES: dict[str, Case] = {
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
        says=("'q': namespace elsewhere has no such LocalQueue, and none at all",),
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
        says=('WorkloadPriorityClass "urgent" not found',),
        status=Exit.FAILED,
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
        says=("! ClusterQueue cq would admit nothing: ", "cohort a is part of a cycle"),
        status=Exit.FAILED,
    ),
    "a flavor that is not there": planned(
        with_flavors("ff"),
        says=("references missing ResourceFlavor(s): ff; create the ResourceFlavor, or take it",),
        status=Exit.FAILED,
    ),
    "a flavor twice": planned(
        with_flavors("f", "f"), says=("ClusterQueue cq: spec.resourceGroups[0].flavors", '"f"')
    ),
    "an admission check that is not there": planned(
        cluster_queue(4, admissionChecksStrategy={"admissionChecks": [{"name": "scan"}]}),
        says=("! ClusterQueue cq would admit nothing: ", "scan; create the AdmissionCheck"),
        status=Exit.FAILED,
    ),
    "a LocalQueue without its ClusterQueue": planned(
        local_queue("gone"),
        says=("! LocalQueue team/other would admit nothing: ", "name one that exists"),
        status=Exit.FAILED,
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
    "a scenario that is not there": said(
        *("simulate-world", "--scenario", "nope"),
        says=("--scenario nope: there is none of this name", "basic, coscheduling"),
    ),
    "fewer worlds than one": said(
        *("simulate-world", "--seeds", "0"), says=("'--seeds': 0 is not in the range x>=1",)
    ),
    "time that stands still": said(
        *("dev", "--speed", "0"), says=("'--speed': 0.0 is not in the range x>=0.001",)
    ),
    "more spokes than a laptop has room for": said(
        *("dev", "--spokes", "21"), says=("'--spokes': 21 is not in the range 0<=x<=20",)
    ),
    "a shell that is not known": said(*("completion", "tcsh"), says=("tcsh", "bash, zsh, fish")),
    "a typo in a service": said(*("run", "qouta"), says=("'qouta' is not one of 'watcher', ",)),
    "a typo in a command": said(
        *("expalin", "team/one"), says=("No such command 'expalin'. Did you mean 'explain'?",)
    ),
    "a typo in an option": said(
        *("get", "wl", "--namspace", "x"), says=("No such option: --namspace", "--namespace")
    ),
    "a key of nobody, to rotate": said(
        *("bus", "permissions", "--keys", "{folder}", "--rotate", "nobody"),
        says=("--rotate: ", "nobody has no key in this folder"),
    ),
    "a spoke with a name that no cluster has": said(
        *("bus", "permissions", "--keys", "{folder}", "--spoke", "No.Good"),
        says=("--spoke: 'No.Good' is no name of a cluster",),
    ),
    "dead letters that are not named": said(
        "dead", "drop", says=("LETTER must say which letters are meant", "`sluice dead list`")
    ),
    "a definition that is not there": said(
        *("integration", "init", "nofile"), says=("sluice: nofile: there is no such file\n",)
    ),
    "a migration that is neither planned nor done": said(
        *("bus", "migrate", "--from", "nats://127.0.0.1:9"),
        says=("migrate: needs --plan or --yes",),
    ),
    "a kubeconfig that is not there, to stop a queue": said(
        *("stop", "clusterqueue", "cq", "--kubeconfig", "/nonexistent"),
        says=("--kubeconfig: '/nonexistent': there is no such file",),
    ),
    "a manifest that is not there": Case(
        arguments=("plan", "-f", "nofile"),
        says=("nofile: there is no such file or folder", "give a file or folder of manifests"),
        status=Exit.NO_PLAN,
    ),
    "a manifest that is not YAML": Case(
        arguments=("plan", "-f", "{file}"),
        text="a: [",
        says=("is not YAML: ",),
        status=Exit.NO_PLAN,
    ),
    "a manifest without a kind": Case(
        arguments=("plan", "-f", "{file}"),
        text="apiVersion: v1",
        says=("kind: must be a string, got nothing",),
        status=Exit.NO_PLAN,
    ),
    "a kind that is not applied": Case(
        arguments=("plan", "-f", "{file}"),
        text="{apiVersion: v1, kind: Gadget, metadata: {name: x}}",
        says=("kind: Gadget of v1 is not one that sluice applies", "there are Namespace"),
        status=Exit.NO_PLAN,
    ),
    "a removal that is no object": Case(
        arguments=("plan", "--remove", "pod/x"),
        says=("--remove pod/x: is no KIND/NAME", "KIND is one of clusterqueue"),
        status=Exit.NO_PLAN,
    ),
    "a removal of what is not there": Case(
        arguments=("plan", "--state", "{state}", "--remove", "clusterqueue/cd"),
        says=("--remove ClusterQueue/cd: there is no such object",),
        status=Exit.NO_PLAN,
    ),
    "a state that is not there": Case(
        arguments=("simulate", "--state", "nowhere"),
        says=("nowhere: is not what `sluice simulate --save` writes",),
    ),
    "a disk that is full": Case(
        arguments=("simulate", "--state", "{state}", "--save", "/dev/full"),
        says=("/dev/full: no space left on device", "make room on the disk"),
    ),
    "a folder that is a file": Case(
        arguments=("dev", "--directory", "{file}"),
        text="{}",
        says=("config.yaml: file exists", "name a folder: there is a file of this name"),
    ),
    "a duration without a unit": Case(
        arguments=("simulate", "--log", "5"), says=("--log 5: ", "for example 30m, 24h or 7d")
    ),
    "a run that is not there, mutated": Case(
        arguments=("mutate", "--pipelinerun-file", "nofile", "--config-dir", "{rules}"),
        says=("sluice: nofile: there is no such file\n",),
    ),
    "rules that are not there": Case(
        arguments=("mutate", "--pipelinerun-file", "{file}", "--config-dir", "nofolder"),
        text="{}",
        says=("sluice: nofolder/config.yaml: there is no such file\n",),
    ),
    "an expression that does not compile": Case(
        arguments=("mutate", "--pipelinerun-file", "{file}", "--config-dir", "{folder}"),
        text="{queueName: q, cel: {expressions: ['priority(1 +)']}}",
        says=("config.yaml: ", "priority(1 +)"),
    ),
    "an Integration that is not there": Case(
        arguments=("integration", "check", "nofile"),
        says=("sluice: nofile: there is no such file\n",),
    ),
    "a kubeconfig that is not there, to run": Case(
        arguments=("dev", "--kubeconfig", "/nonexistent"),
        says=("--kubeconfig: '/nonexistent': there is no such file", "leave the option out"),
    ),
    "a kubeconfig that is not there, to uninstall": Case(
        arguments=("uninstall", "--plan", "--kubeconfig", "/nonexistent"),
        says=("--kubeconfig: '/nonexistent': there is no such file",),
    ),
    "an uninstall that is neither planned nor done": Case(
        arguments=("uninstall",), says=("uninstall: needs --plan or --yes", "start with --plan")
    ),
    "a typo in a resource": Case(
        arguments=("get", "workload-s"),
        says=("'workload-s': there is no such resource; did you mean workloads?", "there are "),
    ),
    "a resource that is like none": Case(
        arguments=("get", "foo"), says=("'foo': there is no such resource\n", "there are workloads")
    ),
    "an output that a table has not": Case(
        arguments=("get", "wl", "-o", "xml"), says=("--output xml: must be one of table, wide",)
    ),
    "a workload without its namespace": Case(
        arguments=("explain", "build-1"),
        says=("'build-1': must be NAMESPACE/NAME", "for example team-tenant/build-1"),
    ),
    "a namespace without a name": Case(
        arguments=("get", "wl", "-n", ""),
        says=("--namespace: '' is no name of a namespace", "leave the option out"),
    ),
    "a namespace that no cluster has": Case(
        arguments=("stop", "localqueue", "q", "--namespace", "Team A"),
        says=("--namespace: 'Team A' is no name of a namespace", "such as team-a"),
    ),
    "victims of a namespace that no cluster has": said(
        *("who-preempted", "-n", "team/a"), says=("--namespace: 'team/a' is no name of a",)
    ),
    "a workload in a namespace that no cluster has": said(
        *("history", "Team_A/one"), says=("'Team_A/one': 'Team_A' is no name of a namespace",)
    ),
    "a name that is too long": said(
        *("history", "team/" + 300 * "x"), says=("the name has more than 253 bytes",)
    ),
    "a cluster whose name is too long": Case(
        arguments=("get", "wl", "--cluster", 300 * "x"),
        says=("name 'xxx", "has 300 bytes; Kubernetes allows 253"),
    ),
    "a name with two slashes": Case(
        arguments=("history", "a/b/c"), says=("'a/b/c': must be NAMESPACE/NAME",)
    ),
    "a NATS server that is not there": Case(
        arguments=("get", "wl", "--nats-url", "nats://127.0.0.1:9"),
        says=("NATS at nats://127.0.0.1:9: ", "is it running?"),
        status=Exit.UNREACHABLE,
    ),
    "a NATS server of another scheme": Case(
        arguments=("get", "wl", "--nats-url", "http://127.0.0.1:9"),
        says=("NATS at http://127.0.0.1:9: ",),
        status=Exit.UNREACHABLE,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_bad_input_is_named_with_what_to_do(case: Case, tmp_path: Path, sluice: Sluice) -> None:
    state = tmp_path / "state"
    state.mkdir()
    objects = [*CONFIGURATION_KINDS, cluster_queue(4)]
    (state / "queues.yaml").write_text(yaml.safe_dump_all(objects))
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump_all(case.objects) if case.text is None else case.text)
    rules = Path(__file__).parents[3] / "deploy" / "examples" / "konflux" / "classifier"
    places = {"state": state, "file": file, "folder": tmp_path, "rules": rules}

    status, out, err = sluice(*(argument.format(**places) for argument in case.arguments))

    told = out + err
    for sentence in case.says:
        assert sentence in told
    assert "Traceback" not in told
    assert "Errno" not in told
    assert status == case.status
