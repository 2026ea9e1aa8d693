"""A usage report as a bill: CSV with exact quantities, and money computed without floating point.

The price is of one GPU for one hour. The cost of a row is ``milli_gpu_seconds x price / 3,600,000``, computed exactly and
then rounded to whole cents (or to `--digits`), a half upwards. A total is the sum of the rounded rows, so that a bill
adds up; it differs from the rounded cost of the whole by half a cent a row at most.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import TextIO

import typer

from gpupool.cli.common.quantities import GPU_HOUR
from gpupool.cli.common.times import utc
from gpupool.client.reports import UsageReport, UsageRow

_MAXIMUM_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Price:
    """Of one GPU for one hour. `digits`: places behind the point that money has."""

    amount: Decimal
    currency: str = ""
    digits: int = 2

    def cost(self, milli_ms: int) -> Decimal:
        """What so many milli-GPU-milliseconds cost, rounded."""
        scaled = Fraction(self.amount) * milli_ms / GPU_HOUR * 10**self.digits
        return Decimal((2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)).scaleb(
            -self.digits
        )


def price(text: str) -> Decimal:
    """An amount of money, exactly as it is written."""
    try:
        found = Decimal(text)
    except InvalidOperation:
        found = Decimal(-1)
    exponent = found.as_tuple().exponent
    if (
        not found.is_finite()
        or not 0 <= found <= 10**9
        or not isinstance(exponent, int)
        or exponent < -_MAXIMUM_DIGITS
    ):
        raise typer.BadParameter(f"{text!r} is no price; write one such as 1.80")
    return found


def columns(by: Sequence[str], priced: bool) -> list[str]:
    """The header: the groups in their order, then what was used."""
    money = ["price", "cost", "currency"] if priced else []
    return ["from", "to", *(name for name in by if name not in ("hour", "day")),
            "leases", "milli_gpu_seconds", "mib_seconds", "gpu_hours", *money]  # fmt: skip


def write(report: UsageReport, out: TextIO, money: Price | None = None) -> None:
    """The report as CSV: one line a row, in the order of its groups, no total."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns(report.by, money is not None))
    for row in report.rows:
        since, until = period(report, row)
        names = [harmless(getattr(row, name)) for name in report.by if name not in ("hour", "day")]
        cells: list[str] = [utc(since), utc(until), *names, str(row.leases)]
        cells += [thousandths(row.milli_ms), thousandths(row.mib_ms), gpu_hours(row.milli_ms)]
        if money is not None:
            cells += [f"{money.amount:f}", f"{money.cost(row.milli_ms):f}", harmless(money.currency)]
        writer.writerow(cells)


def period(report: UsageReport, row: UsageRow) -> tuple[float, float]:
    """The time of a row: its hour or day as far as it was asked for, else all of it."""
    length = 3600.0 if "hour" in report.by else 86_400.0 if "day" in report.by else None
    if length is None:
        return report.from_unix, report.to_unix
    return max(row.from_unix, report.from_unix), min(row.from_unix + length, report.to_unix)


def total_cost(rows: Iterable[UsageRow], money: Price) -> Decimal:
    """The sum of the rounded costs."""
    return sum((money.cost(row.milli_ms) for row in rows), Decimal(0).scaleb(-money.digits))


def thousandths(amount: int) -> str:
    """A number of thousandths, exactly: 1234567 → ``1234.567``."""
    return f"{amount // 1000}.{amount % 1000:03d}"


def gpu_hours(milli_ms: int) -> str:
    """For people, rounded to a millionth (3.6 milliseconds of a GPU), a half upwards."""
    millionths = (2 * milli_ms * 1_000_000 + GPU_HOUR) // (2 * GPU_HOUR)
    return f"{millionths // 1_000_000}.{millionths % 1_000_000:06d}"


def harmless(cell: str) -> str:
    """Spreadsheets execute cells that begin like formulas: these get an apostrophe in front."""
    return f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t") else cell
