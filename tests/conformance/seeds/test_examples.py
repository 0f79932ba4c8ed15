"""The manifests in `deploy/examples/seeds` are the documents' own: all of them, with nothing made up."""

import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from services.classifier.tekton.defaulting import decode
from services.classifier.tekton.validation import validate
from shared.contracts.kube.kinds import Object
from tests.conformance.seeds.stage import EXAMPLES, example

SEEDS: Final = Path(__file__).parents[4] / "shared" / "seeds"
FILES: Final = sorted(EXAMPLES.rglob("*.yaml"))
HEADER: Final = re.compile(r"# Seed (?P<seed>\w+), lines (?P<lines>\d+ to \d+(?: and \d+ to \d+)*)")

RESTORED: Final = {
    "040-workload": (
        "apiVersion: kueue.x-k8s.io/v1beta1 metadata: spec: podSets: template: spec: containers:"
        " gcr.io/k8s-staging-perf-tests/sleep:latest resources: requests:"
    ),
    "pipeline-runs": "metadata: name: coscheduled",
}
"""What a file says and its document has lost."""


def words(lines: list[str]) -> list[str]:
    """All but comments, and the space that some documents have lost."""
    told = (line for line in lines if not line.lstrip().startswith("#"))
    return [word for line in told for word in line.split() if word != "---"]


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the seed documents are not at hand")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_file_equals_the_document_lines_it_names(path: Path) -> None:
    text = path.read_text()
    if (named := HEADER.match(text)) is None:
        assert text.startswith("# Of no seed:")
        return
    document = (SEEDS / f"{named['seed']}.txt").read_text().split("\n")
    ranges = [(int(a), int(b)) for a, b in re.findall(r"(\d+) to (\d+)", named["lines"])]
    theirs = words([line for first, last in ranges for line in document[first - 1 : last]])
    ours = words(text.split("\n"))

    in_order = iter(ours)
    assert [word for word in theirs if word not in in_order] == [], "missing here"
    surplus = Counter(ours) - Counter(theirs)
    assert surplus == Counter(RESTORED.get(path.stem, "").split()), "not said there"
    assert not any(document[last].startswith(" ") for _, last in ranges), "it goes on there"


@pytest.mark.parametrize(
    "run", example("tekton/pipeline-runs.yaml"), ids=lambda run: run["metadata"]["name"]
)
def test_tekton_accepts_the_example_runs(run: Object) -> None:
    validate(decode(run))
