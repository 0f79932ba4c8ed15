"""`sluice mutate`: one PipelineRun from a file, as the webhook would make it."""

from pathlib import Path

import pytest
import yaml

from services.classifier.command import mutate_file
from services.classifier.mutate import RefusedError

RUN = """\
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {name: p, namespace: ns}
spec:
  pipelineRef: {name: b}
  params: [{name: build-platforms, value: [linux/arm64]}]
"""
KONFLUX = Path(__file__).parents[3] / "deploy" / "examples" / "konflux" / "classifier"


def test_the_whole_mutated_object_is_printed(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(RUN)

    made = yaml.safe_load(mutate_file(tmp_path / "run.yaml", KONFLUX))

    assert made["metadata"]["labels"] == {
        "kueue.x-k8s.io/queue-name": "pipelines-queue",
        "kueue.x-k8s.io/priority-class": "konflux-default",
    }
    assert made["metadata"]["annotations"]["kueue.konflux-ci.dev/requests-linux-arm64"] == "1"
    assert made["spec"]["status"] == "PipelineRunPending"
    assert made["spec"]["params"] == [{"name": "build-platforms", "value": ["linux/arm64"]}]
    assert made["status"] == {}


def test_a_run_that_the_webhook_would_deny_is_refused_with_its_words(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(RUN.replace("[linux/arm64]", "[linux/]"))

    with pytest.raises(RefusedError, match="resource key 'linux-' is invalid") as refusal:
        mutate_file(tmp_path / "run.yaml", KONFLUX)

    assert refusal.value.code == 500


@pytest.mark.parametrize(
    ("run", "configuration", "problem"),
    [
        pytest.param(None, "queueName: q", "run.yaml", id="no file"),
        pytest.param(RUN, None, "config.yaml", id="no configuration"),
        pytest.param(RUN, "queueName: ''", "config.yaml: queueName: is not set", id="a bad one"),
        pytest.param("{", "queueName: q", "run.yaml: not YAML", id="no YAML"),
        pytest.param("[]", "queueName: q", "expected one object", id="no object"),
        pytest.param(f"{RUN}---\n{RUN}", "queueName: q", "got 2 documents", id="two objects"),
        pytest.param("kind: Pod", "queueName: q", "expected a PipelineRun, got 'Pod'", id="a Pod"),
    ],
)
def test_what_cannot_be_used_is_named(
    tmp_path: Path, run: str | None, configuration: str | None, problem: str
) -> None:
    if run is not None:
        (tmp_path / "run.yaml").write_text(run)
    if configuration is not None:
        (tmp_path / "config.yaml").write_text(configuration)

    with pytest.raises(ValueError, match=problem):
        mutate_file(tmp_path / "run.yaml", tmp_path)
