import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.contracts import subjects

TOKENS = {
    "a plain name stays as it is": ("team-a", "team-a"),
    "dots become underscores": ("web.v1.example", "web_v1_example"),
    "no name is an underscore": (None, "_"),
    "a wildcard is encoded": ("w.*", "=o4xcu"),
    "capital letters are encoded": ("Job", "=jjxwe"),
}


@pytest.mark.parametrize(("name", "token"), TOKENS.values(), ids=TOKENS.keys())
def test_name_becomes_one_token(name: str | None, token: str) -> None:
    assert subjects.encode(name) == token
    assert subjects.decode(token) == name


@given(st.text(min_size=1, max_size=60))
def test_every_name_comes_back_and_is_one_safe_token(name: str) -> None:
    token = subjects.encode(name)
    assert subjects.decode(token) == name
    assert not set(token) & set(" .*>\r\n\t"), token


def test_name_longer_than_kubernetes_allows_is_refused() -> None:
    with pytest.raises(subjects.NameTooLongError, match="254 bytes"):
        subjects.encode("a" * 254)


def test_longest_names_still_fit_the_control_line() -> None:
    longest = "*" * 253
    subject = subjects.join("observed", longest, longest, longest, detail="x" * 60)
    assert len(subject) < subjects.SUBJECT_BYTES_MAX


def test_invalid_token_is_refused() -> None:
    with pytest.raises(ValueError, match="is not a subject token"):
        subjects.decode("=!")


def test_filters_name_one_cluster_or_all() -> None:
    assert subjects.subject_filter("host") == "sluice.host.>"
    assert subjects.subject_filter("host", "hub") == "sluice.host.hub.>"
    assert subjects.synced_filter() == "sluice.observed.*._._.synced"
    assert subjects.synced_filter("hub") == "sluice.observed.hub._._.synced"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({}, "sluice.queue.*.*.*"),
        ({"namespace": ""}, "sluice.queue.*._.*"),
        ({"cluster": "hub.example", "name": "a"}, "sluice.queue.hub_example.*.a"),
    ],
)
def test_pattern_matches_any_name_that_is_not_given(names: dict[str, str], expected: str) -> None:
    assert subjects.subject_pattern("queue", **names) == expected
