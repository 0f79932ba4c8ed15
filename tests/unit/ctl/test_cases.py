"""`sluice demo --pipelineruns`: what is read, and when a result is not as expected."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from services.ctl.admin.mutate import load_rules
from services.ctl.demo.cases import CaseResult, GivenCase, load_cases, verdict_of
from services.ctl.demo.create import Submitted
from services.ctl.demo.load import Arrival
from services.ctl.dev.app import EXAMPLE
from shared.contracts.kube import kinds
from shared.contracts.kube.kinds import Object
from shared.runtime.command import CommandError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RULES = load_rules(EXAMPLE / "classifier")
RUN = """
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {generateName: build-, namespace: team-tenant}
spec: {pipelineRef: {name: p}}
"""


def result(
    *,
    expected: dict[str, Any] | None = None,
    refusal: str = "",
    ended: bool = True,
    unsure: bool = False,
    class_: str = "konflux-default",
    requests: dict[str, str] | None = None,
    namespace: str | None = "team-tenant",
) -> CaseResult:
    metadata: Object = {"name": "x", "uid": "u"} | ({"namespace": namespace} if namespace else {})
    run: Object = {
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": metadata,
        "spec": {"pipelineRef": {"name": "p"}},
    }
    if ended:
        run["status"] = {"conditions": [{"type": "Succeeded", "status": "True"}]}
    asked = {"tekton.dev/pipelineruns": "1"} | (requests or {})
    containers = [{"resources": {"requests": asked}}]
    workload: Object = {
        "spec": {
            "priorityClassRef": {"name": class_},
            "podSets": [{"template": {"spec": {"containers": containers}}}],
        }
    }
    arrival = Arrival(after_seconds=0, kind=kinds.PIPELINE_RUN, object=run, tier="")
    return CaseResult(
        case=GivenCase(name="x", run=run, expected=expected, unsure=unsure),
        submitted=Submitted(
            arrival=arrival, at=NOW, object=None if refusal else run, refusal=refusal
        ),
        run=None if refusal else run,
        workload=None if refusal else workload,
    )


DEFAULT = {"priorityClass": "konflux-default", "requests": {}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(result(), "", id="nothing is expected: it is enough that it ended"),
        pytest.param(result(ended=False), "did not run to the end", id="it did not end"),
        pytest.param(result(refusal="no"), "was denied: no", id="it was denied"),
        pytest.param(result(expected=DEFAULT), "", id="class and requests as expected"),
        pytest.param(
            result(expected=DEFAULT, class_="konflux-release"),
            "class konflux-release, expected konflux-default",
            id="another class",
        ),
        pytest.param(
            result(expected=DEFAULT | {"requests": {"cpu": "500m"}}, requests={"cpu": "0.5"}),
            "",
            id="equal quantities may be written differently",
        ),
        pytest.param(
            result(expected=DEFAULT, requests={"aws-ip": "1"}),
            "requests {'aws-ip': '1'}, expected {}",
            id="more than expected",
        ),
        pytest.param(
            result(expected={"error": {"contains": "empty"}}),
            "was expected to be denied with 'empty'",
            id="it should have been denied",
        ),
        pytest.param(
            result(expected={"error": {"contains": "empty"}}, refusal="key cannot be empty"),
            "",
            id="denied with the words expected",
        ),
        pytest.param(
            result(expected={"error": {"contains": "empty"}}, refusal="no such class"),
            "was denied, but not with 'empty'",
            id="denied for another reason",
        ),
        pytest.param(
            result(expected=DEFAULT, ended=False, unsure=True), "", id="nobody knows how it ends"
        ),
        pytest.param(
            result(expected=DEFAULT, class_="konflux-release", namespace=None),
            "",
            id="without a namespace only `mutate` can tell",
        ),
    ],
)
def test_each_check_finds_its_fault(given: CaseResult, said: str) -> None:
    assert verdict_of(given, RULES) == said


def test_a_file_of_cases_is_read_with_what_is_expected(tmp_path: Path) -> None:
    path = tmp_path / "cases.yaml"
    indented = RUN.strip().replace("\n", "\n    ")
    path.write_text(
        f"cases:\n- name: one\n  expected: {{requests: {{}}}}\n  pipelineRun:\n    {indented}"
    )
    (case,) = load_cases(path)
    assert (case.name, case.expected) == ("one", {"requests": {}})
    assert case.run["metadata"]["generateName"] == "build-"


def test_a_folder_of_manifests_gives_its_pipelineruns_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(RUN)
    (tmp_path / "b.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n")
    assert [case.name for case in load_cases(tmp_path)] == ["team-tenant/build-…"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("cases: [1]", r"cases\[0\]: pipelineRun: must be an object", id="no object"),
        pytest.param(
            "cases: [{pipelineRun: {}, expected: 3}]",
            r"cases\[0\]: expected: must be an object, got 3",
            id="an expectation that is none",
        ),
        pytest.param(
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n",
            "holds no PipelineRun",
            id="nothing to create",
        ),
    ],
)
def test_unreadable_file_of_cases_is_named_with_its_problem(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "cases.yaml"
    path.write_text(text)
    with pytest.raises(CommandError, match=said):
        load_cases(path)
