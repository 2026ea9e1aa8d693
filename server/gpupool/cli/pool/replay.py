"""`gpupool pool replay`: makes a decision of the past again and says whether it comes out the same."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpupool.cli.common import exits, show
from gpupool.cli.common.options import Json
from gpupool.client.endpoint import LEDGER_VARIABLE, private_home

if TYPE_CHECKING:
    from gpupool.pool.lifecycle.replay import Replay

#: Exit code when the decision comes out otherwise.
DIFFERENT = 1


def replay(
    number: Annotated[
        int,
        typer.Argument(
            metavar="NUMBER", min=1, help="Number of a line of the journal (`gpupool pool audit`)."
        ),
    ],
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            envvar=LEDGER_VARIABLE,
            help="The ledger, or a backup of it [default: $GPUPOOL_LEDGER or the file $GPUPOOL_HOME/pool.sqlite].",
            show_default=False,
            show_envvar=False,
        ),
    ] = None,
    without_lease: Annotated[
        list[str] | None,
        typer.Option(metavar="LEASE", help="What if this lease had not been there? May be given again."),
    ] = None,
    with_policy: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What if this placement policy had decided?", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Put the pool in the state before a line of the journal, give it the same event, and compare.

    Nothing is changed: it happens in memory, on a copy of what the ledger recorded.
    Ends with 1 when the decision comes out otherwise, which is what --without-lease and --with-policy are for.

    \b
    Examples:
      gpupool pool replay 1234
      gpupool pool replay 1234 --ledger /backup/pool-monday.sqlite --without-lease l0a1b2c3d4e5f
    """
    from sqlalchemy.exc import SQLAlchemyError

    from gpupool.ledger import steps
    from gpupool.ledger.ledger import LedgerError
    from gpupool.ledger.reading import reading
    from gpupool.pool.lifecycle.replay import replay as make_again
    from gpupool.pool.options import LEDGER_NAME
    from gpupool.scheduler.placement import POLICIES

    if with_policy is not None and with_policy not in POLICIES:
        raise typer.BadParameter(
            f"{with_policy!r} is no placement policy; there are {', '.join(sorted(POLICIES))}"
        )
    try:
        with (
            exits.clear_errors(),
            reading(ledger or private_home() / LEDGER_NAME) as connection,
        ):
            step = steps.number_of_line(connection, number)
            again = make_again(connection, step, without_leases=without_lease or (), policy=with_policy)
    except (LedgerError, steps.StepsMissingError, SQLAlchemyError) as error:
        exits.say(str(error).splitlines()[0])
        raise typer.Exit(exits.FAILED) from None
    if json:
        show.as_json(_plain(again))
    else:
        _tell(again, what_if=bool(without_lease or with_policy))
    if not again.same_outcome:
        raise typer.Exit(DIFFERENT)


def _tell(again: Replay, *, what_if: bool) -> None:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(again.at_unix))
    state = again.state
    holding = [lease for lease in state.leases.values() if lease.holds]
    milli = sum(share.milli for lease in holding for share in lease.taken())
    print(f"step {again.number} of {at}: {type(again.event).__name__}")
    print(
        f"before: {len(state.nodes)} node(s), {len(state.devices)} device(s), {len(holding)} lease(s) that hold "
        f"{milli} milli-GPU, {len(state.requests)} waiting"
    )
    lines = show.table("", "WHAT", "LEASE", "USER", "WHY")
    for line in again.recorded:
        mark = "" if again.same else "then"
        lines.add(mark, line.kind, line.lease_id, line.user, line.explanation)
    if not again.same:
        for line in again.lines:
            lines.add("now", line.kind, line.lease_id, line.user, line.explanation)
    show.console().print(lines)
    if again.same:
        print("the same decision, with the same consequences")
    elif again.same_outcome:
        print("the same decision, in other words: then it went by a look at the queue of a moment before")
    elif what_if:
        print("another decision")
    else:
        print("another decision: the program, its options or the record differ from then")


def _plain(again: Replay) -> dict[str, Any]:
    return {
        "step": again.number,
        "at_unix": again.at_unix,
        "event": type(again.event).__name__,
        "same": again.same_outcome,
        "same_words": again.same,
        "recorded": [dataclasses.asdict(line) for line in again.recorded],
        "replayed": [dataclasses.asdict(line) for line in again.lines],
        "recorded_changes": again.recorded_changes,
        "replayed_changes": again.changes,
    }
