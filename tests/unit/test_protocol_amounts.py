"""Amounts with up to three decimals, as whole thousandths."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.errors import UsageError
from tenure.protocol.amounts import Amount, decimal_text, thousandths


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (0, 0),
        (2, 2_000),
        (0.25, 250),
        ("2.5", 2_500),
        ("12", 12_000),
        (Decimal("0.125"), 125),
        (Decimal("1E+2"), 100_000),
    ],
)
def test_an_amount_is_read_exactly(amount: Amount, expected: int) -> None:
    assert thousandths(amount, "it") == expected


@pytest.mark.parametrize(
    "amount",
    [-1, "-1", "", ".5", "5.", "1.2345", 0.1 + 0.2, 1e-9, 1e30, float("nan"), float("inf"), True, "1e3", "٣", "1\n"],
)
def test_what_is_no_amount_is_refused(amount: Amount) -> None:
    with pytest.raises(UsageError, match="it is not an amount"):
        thousandths(amount, "it")


@given(st.integers(0, 2**53))
def test_what_is_written_is_read_back(amount: int) -> None:
    assert thousandths(decimal_text(amount), "it") == amount
