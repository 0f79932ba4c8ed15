"""`sluice mutate`: one object from a file, as the webhook would make it."""

from pathlib import Path

import pytest
import yaml

from services.ctl.admin.mutate import mutated_yaml
from shared.runtime.command import CommandError, Exit

RUN = """\
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {name: p, namespace: ns}
spec:
  pipelineRef: {name: b}
  params: [{name: build-platforms, value: [linux/arm64]}]
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: q}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
"""
KONFLUX = Path(__file__).parents[3] / "deploy" / "examples" / "konflux" / "classifier"


def test_the_whole_mutated_object_is_printed(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(RUN)

    made = yaml.safe_load(mutated_yaml(tmp_path / "run.yaml", KONFLUX))

    assert made["metadata"]["labels"] == {
        "kueue.x-k8s.io/queue-name": "pipelines-queue",
        "kueue.x-k8s.io/priority-class": "konflux-default",
    }
    assert made["metadata"]["annotations"]["kueue.konflux-ci.dev/requests-linux-arm64"] == "1"
    assert made["spec"]["status"] == "PipelineRunPending"
    assert made["spec"]["params"] == [{"name": "build-platforms", "value": ["linux/arm64"]}]
    assert made["status"] == {}


def test_a_job_is_printed_suspended(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    given = yaml.safe_load(JOB)
    made = yaml.safe_load(mutated_yaml(tmp_path / "job.yaml", KONFLUX))
    assert made == {**given, "spec": {**given["spec"], "suspend": True}}


@pytest.mark.parametrize("text", ["1e3", "12345e67", "y", "N", "0o17", "+.5", "1:30", "2026-01-01"])
def test_yaml_quotes_text_that_kubectl_would_read_as_another_type(
    tmp_path: Path, text: str
) -> None:
    """The output is made to be piped into `kubectl create`."""
    (tmp_path / "run.yaml").write_text(
        RUN.replace("ns}", f"ns, annotations: {{commit: '{text}'}}}}")
    )
    assert f"commit: '{text}'\n" in mutated_yaml(tmp_path / "run.yaml", KONFLUX)


@pytest.mark.parametrize("value", ["5", "-5", "1.5", "true", "null", "text", "12345ab"])
def test_other_values_stay_plain(tmp_path: Path, value: str) -> None:
    (tmp_path / "run.yaml").write_text(f"{RUN}  other: {value}\n")
    assert f"\n  other: {value}\n" in mutated_yaml(tmp_path / "run.yaml", KONFLUX)


def test_run_denied_by_the_webhook_is_refused_with_its_message(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(RUN.replace("[linux/arm64]", "[linux/]"))

    with pytest.raises(CommandError, match=r"500: .*resource key 'linux-' is invalid") as refusal:
        mutated_yaml(tmp_path / "run.yaml", KONFLUX)

    assert refusal.value.status == Exit.FAILED


@pytest.mark.parametrize(
    ("run", "configuration", "problem"),
    [
        pytest.param(None, "queueName: q", "run.yaml", id="no file"),
        pytest.param(RUN, None, "config.yaml", id="no configuration"),
        pytest.param(RUN, "queueName: ''", "config.yaml: queueName: is not set", id="a bad one"),
        pytest.param("{", "queueName: q", "run.yaml: is not YAML", id="no YAML"),
        pytest.param("[]", "queueName: q", "is no object", id="no object"),
        pytest.param(f"{RUN}---\n{RUN}", "queueName: q", "has 2", id="two objects"),
    ],
)
def test_unusable_file_is_named(
    tmp_path: Path, run: str | None, configuration: str | None, problem: str
) -> None:
    if run is not None:
        (tmp_path / "run.yaml").write_text(run)
    if configuration is not None:
        (tmp_path / "config.yaml").write_text(configuration)

    with pytest.raises(CommandError, match=problem):
        mutated_yaml(tmp_path / "run.yaml", tmp_path)
