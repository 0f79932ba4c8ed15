"""The engine against what the reference decided: a sample here, all of it with `make conformance`."""

from pathlib import Path

import pytest

from tests.conformance.quota import SAMPLES, compare, main, scenarios

FAMILIES = [p for p in sorted(SAMPLES.glob("*.jsonl.gz")) if not p.name.startswith("unsettled")]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda p: p.name.removesuffix(".jsonl.gz"))
def test_the_engine_decides_what_the_reference_decides(family: Path) -> None:
    assert [str(m) for d in scenarios(family) if (m := compare(d)) is not None] == []


def test_a_mismatch_says_what_differed_in_which_step() -> None:
    document = next(scenarios(FAMILIES[0]))
    document["expected"][0]["pending"].append("ns/nobody")
    mismatch = compare(document)
    assert mismatch is not None
    assert str(mismatch).endswith("step 1: pending: missing ['ns/nobody'], unexpected -")


def test_an_empty_folder_is_no_success(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 1
