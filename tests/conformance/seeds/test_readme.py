"""The README of this folder is true and whole."""

import pytest

from tests.conformance.seeds.says import FOLDER, README, mapped, readme, says

SEEDS = FOLDER.parents[3] / "shared" / "seeds"


def test_readme_lists_the_tests_of_every_paragraph() -> None:
    assert README.read_text() == readme(), (
        "write it again: python -m tests.conformance.seeds.says --write"
    )


@pytest.mark.skipif(not SEEDS.is_dir(), reason="the seed documents are not at hand")
@pytest.mark.parametrize("seed", ["000", "001", "002", "003", "004"])
def test_every_line_of_a_seed_belongs_to_one_paragraph(seed: str) -> None:
    lines = next(SEEDS.glob(f"{seed}_*.txt")).read_text().split("\n")
    listed = [number for p in mapped() if p.seed == seed for number in range(p.first, p.last + 1)]
    assert len(listed) == len(set(listed)), "two paragraphs have a line in common"
    assert (
        {n for n, line in enumerate(lines, 1) if line.strip()}
        <= set(listed)
        <= set(range(1, len(lines) + 1))
    )


def test_every_paragraph_has_a_test_or_a_reason_for_none() -> None:
    silent = [f"{p.seed}:{p.first}" for p in mapped() if not p.tests and not p.nothing]
    assert silent == []


@pytest.mark.parametrize("place", ["4:26", "005:1", "004", "004:26-", "004:x"])
def test_invalid_paragraph_reference_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match="no place in a seed"):
        says(place)
