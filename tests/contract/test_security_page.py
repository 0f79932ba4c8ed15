"""docs/explanation/security.md promises nothing that no test keeps."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "security.md").read_text()
NAMED = sorted(set(re.findall(r"`(test_\w+)`", PAGE)))


@pytest.fixture(scope="module")
def defined() -> set[str]:
    files = (ROOT / "tests").rglob("test_*.py")
    return {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}


@pytest.mark.parametrize("name", NAMED)
def test_every_test_that_a_promise_names_exists(name: str, defined: set[str]) -> None:
    assert name in defined


@pytest.mark.parametrize("threat", ["T1", "T2", "T3", "T4", "T5"])
def test_every_threat_has_promises_with_tests_and_says_what_is_not_promised(threat: str) -> None:
    [part] = re.findall(rf"^## {threat}: .*?(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"`test_\w+`", part)) >= 3
    assert re.search("not promised", part, re.IGNORECASE)
    rows = [line for line in part.splitlines() if line.startswith("|") and "kept by" not in line]
    promises = rows[rows.index(next(line for line in rows if "test_" in line)) :]
    assert [line for line in promises if "test_" not in line and "---" not in line] == []
