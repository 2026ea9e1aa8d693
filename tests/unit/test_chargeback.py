"""Bills: exact quantities, money without floating point, cells that no spreadsheet executes."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from fractions import Fraction

import pytest
from gpupool.cli.report.chargeback import GPU_HOUR, Price, gpu_hours, thousandths, total_cost, write
from gpupool.client.reports import UsageReport, UsageRow
from hypothesis import given
from hypothesis import strategies as st


def row(milli_ms: int, user: str = "ann", from_unix: float = 0.0) -> UsageRow:
    return UsageRow(user, "", "", "", from_unix, milli_ms, 2 * milli_ms, 1)


@pytest.mark.parametrize(
    ("milli_ms", "price", "digits", "cost"),
    [
        (GPU_HOUR, "1.80", 2, "1.80"),
        (GPU_HOUR // 2, "1.80", 2, "0.90"),
        (GPU_HOUR // 400, "1.00", 2, "0.00"),  # a quarter of a cent
        (GPU_HOUR // 200, "1.00", 2, "0.01"),  # half a cent goes up
        (GPU_HOUR // 200 - 1, "1.00", 2, "0.00"),
        (GPU_HOUR, "150", 0, "150"),
        (GPU_HOUR, "0.000000000001", 6, "0.000000"),
        (10**18, "999999999.999999999999", 2, "277777777777777777.78"),
    ],
)
def test_costs_are_exact_and_rounded_once(milli_ms: int, price: str, digits: int, cost: str) -> None:
    assert f"{Price(Decimal(price), digits=digits).cost(milli_ms):f}" == cost


@given(
    st.lists(st.integers(0, 10**15), max_size=20),
    st.decimals(0, 10**4, places=4, allow_nan=False),
    st.integers(0, 4),
)
def test_a_bill_is_the_sum_of_its_rows_and_close_to_the_cost_of_the_whole(
    amounts: list[int], price: Decimal, digits: int
) -> None:
    money = Price(price, digits=digits)
    rows = [row(amount) for amount in amounts]
    total = total_cost(rows, money)
    assert total == sum((money.cost(amount) for amount in amounts), Decimal(0))
    exact = Fraction(price) * sum(amounts) / GPU_HOUR
    assert abs(Fraction(total) - exact) <= Fraction(len(amounts), 2 * 10**digits)


def test_quantities_are_written_exactly() -> None:
    assert thousandths(1_234_567) == "1234.567"
    assert thousandths(5) == "0.005"
    assert gpu_hours(GPU_HOUR) == "1.000000"
    assert gpu_hours(GPU_HOUR // 3) == "0.333333"
    assert gpu_hours(1800) == "0.000001"
    assert gpu_hours(1799) == "0.000000"


def test_a_row_of_an_hour_ends_where_the_asked_time_does() -> None:
    report = UsageReport(1800.0, 6900.5, ("hour", "user"), (row(5), row(6, from_unix=3600.0)), 0, 11, 0)
    out = io.StringIO()
    write(report, out)
    assert out.getvalue().splitlines() == [
        "from,to,user,leases,milli_gpu_seconds,mib_seconds,gpu_hours",
        "1970-01-01T00:30:00Z,1970-01-01T01:00:00Z,ann,1,0.005,0.010,0.000000",
        "1970-01-01T01:00:00Z,1970-01-01T01:55:00.500Z,ann,1,0.006,0.012,0.000000",
    ]


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_no_name_is_a_formula(name: str) -> None:
    out = io.StringIO()
    write(UsageReport(0.0, 1.0, ("user",), (row(5, name),), 0, 5, 0), out, Price(Decimal(1), name))
    (cells,) = csv.DictReader(io.StringIO(out.getvalue()))
    assert cells["user"] == cells["currency"] == f"'{name}"
