import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.contracts.kube.quantities import (
    NANO,
    QuantityError,
    amount,
    format_amount,
    format_quantity,
    parse_quantity,
)

GOOD = {
    "a whole number": ("3", 3 * NANO),
    "thousandths": ("1500m", 1_500_000_000),
    "a binary suffix with a fraction": ("1.5Gi", 3 * 2**29 * NANO),
    "an exponent": ("12e6", 12_000_000 * NANO),
    "a suffix that looks like an exponent": ("2E", 2 * 10**18 * NANO),
    "finer than billionths is rounded up": ("0.1n", 1),
    "no digit before the point": (".5", NANO // 2),
    "no digit after the point": ("5.", 5 * NANO),
    "a sign": ("-2", -2 * NANO),
    "the largest that Kubernetes holds": ("9223372036854775807", (2**63 - 1) * NANO),
}

BAD = {
    "not a number": "NaN",
    "infinity": "Infinity",
    "an underscore": "1_000",
    "a leading blank": " 1",
    "digits of another script": "\uff11\uff12",
    "an endless exponent": "1e999999999",
    "an exponent past all sense": "1e19",
    "more than Kubernetes holds": "9223372036854775808",
    "nothing": "",
    "only a point": ".",
    "only a sign": "-",
    "a suffix in the wrong case": "1ki",
    "hexadecimal": "0x1",
    "thousands of digits": "1" * 5000,
}


@pytest.mark.parametrize(("text", "billionths"), GOOD.values(), ids=GOOD.keys())
def test_quantity_is_read_exactly(text: str, billionths: int) -> None:
    assert parse_quantity(text) == billionths


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_quantity_that_kubernetes_refuses_is_quoted_in_the_error(text: str) -> None:
    with pytest.raises(QuantityError, match="is no quantity"):
        parse_quantity(text)


@given(st.integers(-(10**24), 10**24), st.booleans())
def test_printed_quantity_is_parsed_to_the_same_value(value: int, binary: bool) -> None:
    assert parse_quantity(format_quantity(value, binary=binary)) == value


AMOUNTS = {
    "cpu counts in thousandths": ("cpu", "1500m", 1500),
    "a sliver of cpu counts as a thousandth": ("cpu", "1u", 1),
    "memory counts in bytes, rounded up": ("memory", "100m", 1),
    "devices count whole": ("nvidia.com/gpu", "2", 2),
}


@pytest.mark.parametrize(("resource", "text", "counted"), AMOUNTS.values(), ids=AMOUNTS.keys())
def test_quota_counts_in_its_own_units(resource: str, text: str, counted: int) -> None:
    assert amount(resource, text) == counted


def test_negative_request_is_refused() -> None:
    with pytest.raises(QuantityError, match="greater than or equal to 0"):
        amount("cpu", "-1")


PRINTED = {
    "cpu that is not whole": ("cpu", 4500, "4500m"),
    "whole cpu": ("cpu", 2000, "2"),
    "binary memory": ("memory", 2 * 2**30, "2Gi"),
    "memory that is no power of two": ("memory", 1_500_000_000, "1500000000"),
    "slots": ("tekton.dev/pipelineruns", 1000, "1k"),
}


@pytest.mark.parametrize(("resource", "value", "text"), PRINTED.values(), ids=PRINTED.keys())
def test_amounts_are_printed_as_kubernetes_prints_them(
    resource: str, value: int, text: str
) -> None:
    assert format_amount(resource, value) == text
