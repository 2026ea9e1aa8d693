"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated

import typer

from gpupool.client.endpoint import EndpointError, parse_endpoints
from gpupool.client.pool import PoolClient
from gpupool.durations import DurationError, parse_duration


def duration(text: str) -> float:
    """Seconds of ``90``, ``90s``, ``1.5m``, ``2h`` or ``7d``."""
    try:
        return parse_duration(text)
    except DurationError as error:
        raise typer.BadParameter(str(error)) from None


def wait(text: str) -> float:
    """A duration, or ``forever``."""
    return math.inf if text.strip() == "forever" else duration(text)


def whole(low: int, high: int) -> Callable[[str | int], int]:
    """Reads a whole number within bounds; what is wrong is named, which typer's own bounds do not."""

    def read(said: str | int) -> int:
        text = str(said)  # an option's default comes as it is
        digits = text.strip().removeprefix("-")
        number = int(text) if digits.isascii() and digits.isdigit() and len(digits) < 12 else None
        if number is None or not low <= number <= high:
            raise typer.BadParameter(f"{text!r} is no whole number from {low} to {high}")
        return number

    return read


def endpoint(text: str) -> str:
    """Where a pool is: its servers, separated by commas."""
    try:
        return ",".join(parse_endpoints(text))
    except EndpointError as error:
        raise typer.BadParameter(str(error)) from None


def refuse_options(context: typer.Context, names: Collection[str], reason: str) -> None:
    """Ends the command if options were given that have no effect.

    Args:
        context: the command, with what was written.
        names: the parameters' names.
        reason: why they have none.

    Raises:
        typer.BadParameter: it names the first of them.
    """
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and not source.name.startswith("DEFAULT"):
            raise typer.BadParameter(f"{parameter.opts[0]} has no effect: {reason}")


def wait_seconds(seconds: float) -> float | None:
    """As :meth:`PoolClient.request` takes it."""
    return None if math.isinf(seconds) else seconds


Endpoint = Annotated[
    str | None,
    typer.Option(
        "--pool",
        parser=endpoint,
        metavar="ADDRESS",
        help="Address of the pool: host:port, tls:host:port or unix:/path, with standby servers several, separated by commas "
        "[default: $GPUPOOL_ENDPOINT or the local socket].",
        show_default=False,
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        help="File that holds your token (mode 0600) [default: $GPUPOOL_TOKEN_FILE].", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Part = Annotated[
    str | None,
    typer.Option(
        "--partial", "-p", help="Share of each GPU: 0.2, 20%, 2560MiB or 2.5GiB.", show_default=False
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory", "-m", help="Share of each GPU by its memory: MiB, or 2.5GiB.", show_default=False
    ),
]
WaitAgain = Annotated[
    float,
    typer.Option(
        parser=wait,
        metavar="TIME",
        help="If the pool takes the share back for others, wait this long for another one (60, 5m, "
        "forever). CUDA calls wait meanwhile, and memory is kept. 0: CUDA calls fail instead.",
    ),
]
OnBehalfOf = Annotated[
    str, typer.Option("--user", help="For another user (admins only).", show_default=False)
]


def client(endpoint: str | None, token_file: Path | None) -> PoolClient:
    """A connection to the pool; None: the endpoint and the token of the environment or the configuration."""
    return PoolClient(endpoint, token_file)
