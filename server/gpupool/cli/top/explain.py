"""`gpupool explain`: why a request waits, what a lease may expect, what would be said to a request that is not made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from gpupool.cli.common import completing, show, watch
from gpupool.cli.common.options import Endpoint, Json, OnBehalfOf, TokenFile, client
from gpupool.cli.common.request_options import takes_request
from gpupool.client.admin import AdminClient
from gpupool.client.errors import PoolRefusedError
from gpupool.client.os_user import os_user
from gpupool.client.pool import PoolClient
from gpupool.client.types import ExplainAnswer, Explanation, GrantedShare, LeaseRequest, QueueEntry
from gpupool.request.gpu_request import GpuRequest

#: Of a long queue the first are explained; others by their ids.
MOST_REQUESTS: Final = 50


@dataclass(frozen=True, slots=True)
class Explained:
    """``about``: ``request``, ``lease`` or ``wish``; ``id`` is empty for a wish."""

    about: str
    id: str
    granted: bool
    explanation: Explanation
    shares: tuple[GrantedShare, ...]


@takes_request(without=("wait_seconds",))
def explain(
    asked: GpuRequest,
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="REQUEST|LEASE",
            help="Id from `gpupool pool queue` or `gpupool lease list` [default: the first 50 requests "
            "that wait].",
            show_default=False,
            autocompletion=completing.requests,
        ),
    ] = None,
    user: OnBehalfOf = "",
    pool: Endpoint = None,
    token_file: TokenFile = None,
    json: Json = False,
    every: watch.Watch = None,
) -> None:
    """Say why a request waits, with numbers and what would help.

    With -p or -m, it shows how the pool would answer a new request. It requests, grants and changes nothing.

    \b
    Examples:
      gpupool explain
      gpupool explain l3fa94c0be1d2
      gpupool explain -n 2 -p 0.5 --project research/vision
    """
    wish: LeaseRequest | None = None
    if asked.share is None:
        if user or asked != GpuRequest():
            raise typer.BadParameter("options of a request that is not made need its size too: -p or -m")
    else:
        if ids:
            raise typer.BadParameter("either ids, or the size of a request that is not made (-p or -m)")
        wish = LeaseRequest.of(asked, on_behalf_of=user, holder=f"{os_user()}:explain")

    async def work() -> watch.Shown:
        async with client(pool, token_file) as connection:
            if wish is not None:
                answer = await AdminClient(connection).explain_wish(wish)
                answers = [_explained("wish", "", answer)]
            else:
                answers = await _known(connection, ids or [])
        body: RenderableType = "Nobody waits." if not answers else Group(*_paragraphs(answers))
        return watch.Shown(body, {"answers": answers})

    watch.look(work, as_json=json, every=every)


async def _known(connection: PoolClient, ids: list[str]) -> list[Explained]:
    admin = AdminClient(connection)
    queue = [entry for entry in await connection.queue() if entry.id]
    waiting = [entry.id for entry in queue]
    if not ids:
        return [
            answer for entry in queue[:MOST_REQUESTS] if (answer := await _of_entry(admin, entry)) is not None
        ]
    held = {lease.id for lease in [*await connection.leases(), *await connection.leases(ids)]}
    answers = []
    for beginning in ids:
        requests = [name for name in waiting if name.rpartition("\n")[2].startswith(beginning)]
        leases = [name for name in held if name.startswith(beginning)]
        if len(requests) + len(leases) != 1:
            how = (
                f"{len(requests) + len(leases)} requests and leases begin"
                if requests or leases
                else "no request and no lease begins"
            )
            text = f"{how} with {beginning[:40]!r}; `gpupool pool queue` and `gpupool lease list` list them"
            raise PoolRefusedError("unknown-request", text)
        if requests:
            answers.append(_explained("request", requests[0], await admin.explain_request(requests[0])))
        else:
            answers.append(_explained("lease", leases[0], await admin.explain_lease(leases[0])))
    return answers


async def _of_entry(admin: AdminClient, entry: QueueEntry) -> Explained | None:
    """None: it is another user's, or waits no more."""
    if entry.explanation is not None:
        return Explained("request", entry.id, False, entry.explanation, ())
    try:
        return _explained("request", entry.id, await admin.explain_request(entry.id))
    except PoolRefusedError as error:
        if error.reason in ("forbidden", "unknown-request"):
            return None
        raise


def _explained(about: str, name: str, answer: ExplainAnswer) -> Explained:
    return Explained(about, name, answer.granted, answer.explanation, answer.shares)


def _paragraphs(answers: list[Explained]) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for answer in answers:
        if lines:
            lines.append("")
        why = answer.explanation
        head = _head(answer)
        lines.append(show.coloured(head if why.sentence in ("", head) else f"{head}: {why.sentence}"))
        if answer.shares:
            lines.append(
                show.coloured(
                    f"  {'on' if answer.about == 'lease' else 'it would get'} {show.shares(answer.shares)}"
                )
            )
        if why.facts:
            facts = ", ".join(f"{name} {value}" for name, value in sorted(why.facts.items()))
            lines.append(Text("  ") + show.coloured(facts, "dim"))
        for help_ in why.helps:
            lines.append(show.coloured(f"  would help: {help_.sentence}"))
            if help_.arguments:
                lines.append(show.coloured(f"    gpupool lease request {help_.arguments}"))
    return lines


def _head(answer: Explained) -> str:
    why = answer.explanation
    if answer.about == "lease":
        return f"lease {answer.id}"
    about = f"request {show.request_name(answer.id)}" if answer.id else "it"
    if answer.granted:
        return f"{about} would be granted now"
    if why.place or answer.about == "request":
        place = f" at place {why.place}" if why.place else ""
        eta = "" if why.eta_seconds is None else f", about {show.seconds(why.eta_seconds)}"
        return f"{about} {'waits' if answer.about == 'request' else 'would wait'}{place}{eta}"
    return f"{about} would not be granted now"
