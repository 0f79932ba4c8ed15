"""What a user may get wrong: each message names object, field and value, and what to do."""

from pathlib import Path

import pytest
import yaml

from shared.runtime.command import Exit
from tests.unit.ctl.bad_input import (
    INSTALLED,
    NO_SERVER,
    PLANNED,
    STARTED,
    Case,
    installed,
    limited,
    said,
)
from tests.unit.ctl.whatif_objects import CONFIGURATION_KINDS, Sluice, cluster_queue

CASES: dict[str, Case] = {
    **PLANNED,
    **INSTALLED,
    **STARTED,
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
    "a time that is not a number": said(
        *("explain", "team/one", "--forecast-seconds", "nan"),
        says=("nan is not a number that can be used here",),
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
        says=("config.yaml: is not YAML in line 2: did not find",),
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
    "a plan without a change": Case(
        arguments=("plan", "--state", "{state}"),
        says=("plan: no change is given", "-f, an object with --remove, or a spoke with --lost-"),
        status=Exit.NO_PLAN,
    ),
    "a key that comes twice": Case(
        arguments=("plan", "-f", "{file}"),
        text="{apiVersion: v1, kind: Namespace, metadata: {name: a, name: b}}",
        says=("config.yaml: is not YAML in line 1: the key 'name' comes twice",),
        status=Exit.NO_PLAN,
    ),
    "a short name of a kind that is removed": Case(
        arguments=("plan", "--state", "{state}", "--remove", "cq/cd"),
        says=("--remove ClusterQueue/cd: there is no such object",),
        status=Exit.NO_PLAN,
    ),
    "an empty name, as of a variable that is not set": said(
        "stop",
        "cq",
        "",
        says=(
            "sluice: cq: an empty text is given",
            "was a variable of the shell not set?",
        ),
    ),
    "an empty option": said(
        "get", "wl", "--nats-url=", says=("--nats-url: an empty text is given",)
    ),
    "a replay of ages": said(
        "simulate",
        "--log",
        "99999999999d",
        says=(
            "--log 99999999999d: is no duration of at least 1s and at most 3650d",
            "for example 30m",
        ),
    ),
    "a file in a folder that is not there": said(
        *("simulate", "--state", "{state}", "--save", "/nonexistent/x"),
        says=("/nonexistent/x: cannot be written: no such file or directory",),
    ),
    "a namespace that contradicts the name": said(
        *("explain", "team/one", "-n", "other"),
        says=("'team/one': names namespace 'team', and --namespace says 'other'",),
    ),
    "a name beside labels": said(
        *("get", "wl", "one", "-l", "a=b"), says=("--selector: contradicts the name",)
    ),
    "two names": said(
        "get", "cq/a", "b", says=("'cq/a': names an object already, and so does 'b'",)
    ),
    "two intentions": said(
        "uninstall", "--plan", "--yes", says=("--plan and --yes contradict each other",)
    ),
    "a view that is not there": said(
        *("bus", "apply", "--rebuild", "WORKLOADS_NOWW"),
        says=("--rebuild WORKLOADS_NOWW: there is no such view; did you mean 'WORKLOADS_NOW'?",),
    ),
    "a server to move from that is not there": Case(
        arguments=("bus", "migrate", "--plan", "--from", "nats://127.0.0.1:9"),
        says=("NATS at nats://127.0.0.1:9: ", "is it running?"),
        status=Exit.UNREACHABLE,
    ),
    "a manifest without objects": Case(
        arguments=("plan", "-f", "{file}"),
        text="# nothing yet\n",
        says=("config.yaml: holds no objects",),
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
        says=("nowhere: there is no such file", "give a file that `sluice simulate --save` wrote"),
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
        says=(
            "sluice: nofolder/config.yaml: there is no such file\n",
            "give the folder in which the classifier's config.yaml is",
        ),
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
    "rules that are not there, to run": Case(
        arguments=("dev", "--rules", "nofolder"),
        says=("nofolder/config.yaml: there is no such file", "give the folder in which"),
    ),
    "an expression that does not compile, to run": Case(
        arguments=("dev", "--rules", "{folder}"),
        text="{queueName: q, cel: {expressions: ['priority(1 +)']}}",
        says=("config.yaml: ", "priority(1 +)"),
    ),
    "a negative quota, to run": Case(
        arguments=("dev", "--manifests", "{file}"),
        objects=(limited(nominalQuota=-4),),
        says=("nominalQuota", "-4"),
    ),
    "a misspelt field, to run": Case(
        arguments=("dev", "--manifests", "{file}"),
        objects=(limited(nominalQuotas=4),),
        says=("nominalQuotas: ClusterQueue has no such field",),
    ),
    "a folder that cannot be made": Case(
        arguments=("dev", "--directory", "/proc/sluice"),
        says=("/proc/sluice: ", "choose another folder with --directory"),
    ),
    "no cluster to install on": Case(
        arguments=("install", "--manifests", "{file}"),
        objects=(limited(),),
        says=("--kubeconfig: is needed: this is no pod", "give a kubeconfig"),
    ),
    "a kubeconfig that is not there, to run": Case(
        arguments=("dev", "--kubeconfig", "/nonexistent"),
        says=("--kubeconfig: '/nonexistent': there is no such file", "give a kubeconfig"),
    ),
    "a kubeconfig that is not there, to install": said(
        *("install", "--kubeconfig", "/nonexistent"),
        says=("--kubeconfig: '/nonexistent': there is no such file", "give a kubeconfig"),
    ),
    "a kubeconfig that is a folder": said(
        *("stop", "cq", "cq", "--kubeconfig", "{folder}"),
        says=("--kubeconfig: ", "cannot be read: is a directory"),
    ),
    "a kubeconfig that is not YAML": Case(
        arguments=("dev", "--kubeconfig", "{file}"),
        text="a: [",
        says=("config.yaml': is not YAML in line 1: ", "give a kubeconfig of the cluster"),
    ),
    "a kubeconfig of another form": Case(
        arguments=("uninstall", "--plan", "--kubeconfig", "{file}"),
        text="- a",
        says=("config.yaml': is no kubeconfig: it has no fields",),
    ),
    "a kubeconfig without a current context": Case(
        arguments=("uninstall", "--plan", "--kubeconfig", "{file}"),
        text="{contexts: [{name: b}, {name: a}]}",
        says=("current-context: is not set", "choose one with --context: there are a, b"),
    ),
    "a current context that is not there": Case(
        arguments=("spokes", "found", "s", "--kubeconfig", "{file}"),
        text="{contexts: [{name: b}, {name: a}], current-context: c}",
        says=("config.yaml': current-context: 'c': the kubeconfig has no such", "there are a, b"),
    ),
    "a typo in a context": Case(
        arguments=("stop", "cq", "cq", "--kubeconfig", "{file}", "--context", "prd"),
        text="{contexts: [{name: prod}], current-context: prod}",
        says=("--context: 'prd': the kubeconfig has no such context", "there are prod"),
    ),
    "a context of a cluster that is not there": installed(
        "{contexts: [{name: a, context: {cluster: x}}], current-context: a}",
        "config.yaml': context a: cluster: 'x': the file has no such cluster",
    ),
    "a context that is no mapping": installed(
        "{contexts: [{name: a, context: x}], current-context: a}",
        "config.yaml': context a: cluster: None: the file has no such cluster",
    ),
    "a kubeconfig with a date that does not exist": installed(
        "since: 2020-99-99",
        "config.yaml': is not YAML: ",
    ),
    "a context of a number, of a cluster that is not there": installed(
        "{contexts: [{name: 1, context: {cluster: [x]}}], current-context: 1}",
        "config.yaml': context 1: cluster: ['x']: the file has no such cluster",
    ),
    "a context for doctor without its kubeconfig": said(
        *("doctor", "--context", "prod"), says=("--context: needs --kubeconfig",)
    ),
    "a context to install to without its kubeconfig": said(
        *("install", "--context", "prod"), says=("--context: needs --kubeconfig",)
    ),
    "a context of a simulated cluster": said(
        *("dev", "--context", "prod"), says=("--context: needs --kubeconfig",)
    ),
    "an API server that is not there": Case(
        arguments=("stop", "cq", "cq", "--kubeconfig", "{file}"),
        text=NO_SERVER,
        says=("clusterqueue cq: the API server does not answer: ", "does it run? `kubectl get"),
        status=Exit.UNREACHABLE,
    ),
    "an API server that is not there, to uninstall": Case(
        arguments=("uninstall", "--plan", "--kubeconfig", "{file}"),
        text=NO_SERVER,
        says=("uninstall: the API server does not answer: ", "does it run? `kubectl get"),
        status=Exit.UNREACHABLE,
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
        says=("'workload-s': there is no such resource; did you mean 'workloads'?", "there are "),
    ),
    "a resource that is like none": Case(
        arguments=("get", "foo"), says=("'foo': there is no such resource\n", "there are workloads")
    ),
    "an output that a table has not": Case(
        arguments=("get", "wl", "-o", "xml"), says=("--output xml: must be one of table, wide",)
    ),
    "a workload without its namespace": Case(
        arguments=("explain", "build-1"),
        says=(
            "'build-1': must be NAMESPACE/NAME, or NAME beside --namespace",
            "for example team-tenant/build-1",
        ),
    ),
    "a namespace without a name": Case(
        arguments=("get", "wl", "-n", ""),
        says=(
            "-n: an empty text is given",
            "was a variable of the shell not set?",
        ),
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
    "a NATS server that is not there, for the streams": Case(
        arguments=("bus", "apply", "--nats-url", "nats://127.0.0.1:9"),
        says=("NATS at nats://127.0.0.1:9: cannot connect: Connect call failed", "is it running?"),
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
