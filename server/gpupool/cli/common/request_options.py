"""The options of a request for commands that make one: parameters for typer, from the one table of options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterator
from typing import Annotated, Any, Final

import typer

from gpupool.cli.common import completing
from gpupool.request.gpu_request import GpuRequest, made_of, table
from gpupool.request.option import Known, Option, Place, RequestError
from gpupool.shares import Share

#: The parameter of a command in whose place the options stand.
_PLACE: Final = "asked"
_COMPLETED: Final = {
    Known.PROJECTS: completing.projects,
    Known.NODE_POOLS: completing.node_pools,
    Known.CONDITIONS: completing.filters,
    Known.NAMES: completing.device_names,
}


def takes_request(
    *, wait: str | None = None, without: Collection[str] = (), record: type[GpuRequest] = GpuRequest
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with the options of a request in the place of its parameter ``asked``, which is the request then.

    Args:
        wait: how long it waits in the queue unless it is told.
        without: fields that make no sense for it.
        record: the record whose options these are.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        rows = [row for row in _rows(record) if row.field not in without]
        known = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in known.parameters.values():
            if parameter.name == _PLACE:
                parameters += [_parameter(row, wait) for row in rows]
            else:
                parameters.append(parameter)

        @functools.wraps(command)
        def with_request(**given: Any) -> None:
            said = {row.name: given.pop(row.name) for row in rows}
            command(**given, **{_PLACE: _made(said, rows, record)})

        # typer reads both.
        with_request.__signature__ = known.replace(parameters=parameters)  # type: ignore[attr-defined]
        with_request.__annotations__ = {one.name: one.annotation for one in parameters}
        return with_request

    return decorate


def named_share(asked: GpuRequest) -> GpuRequest:
    """The same request, which must say how much."""
    if asked.share is None:
        raise typer.BadParameter("say how much: either -p (a part of each GPU) or -m (memory of each)")
    return asked


def share(partial: str | None, memory: str | None) -> Share:
    """The share of ``-p`` or ``-m``; exactly one of them is needed."""
    rows = {row.name: row for row in table(Place.COMMAND)}
    said = {"partial": partial, "memory": memory}
    given = {name: _read(rows[name], text) for name, text in said.items() if text is not None}
    found = named_share(_made(given, list(rows.values()), GpuRequest)).share
    assert found is not None
    return found


def _rows(record: type[GpuRequest]) -> list[Option]:
    """How much comes first."""
    return sorted(table(Place.COMMAND, record), key=lambda row: row.field != "share")


def _made(said: dict[str, Any], rows: Collection[Option], record: type[GpuRequest]) -> GpuRequest:
    given = {
        row.name: tuple(value) if row.repeated else value
        for row in rows
        if (value := said.get(row.name)) is not None
    }
    try:
        return made_of(given, record)
    except RequestError as error:
        raise typer.BadParameter(str(error)) from None


def _parameter(row: Option, wait: str | None) -> inspect.Parameter:
    """Typer's parameter for a row. What is not given is None: the record has the defaults."""
    default = wait if row.field == "wait_seconds" else None
    more: dict[str, Any] = {"help": f"{row.help[:1].upper()}{row.help[1:]}.", "show_default": bool(default)}
    if row.switch:
        annotation: Any = Annotated[bool, typer.Option(*row.flags, **more)]
        return _named(row, annotation, False)
    more |= {
        "metavar": row.metavar,
        "parser": functools.partial(_read, row),
        "autocompletion": _completed(row),
    }
    kind: Any = list[str] | None if row.repeated else str | None
    return _named(row, Annotated[kind, typer.Option(*row.flags, **more)], default)


def _named(row: Option, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(row.name, kind, default=default, annotation=annotation)


def _read(row: Option, text: str) -> Any:
    try:
        value = row.of_text(text)
    except RequestError as error:
        more = " What there is: gpupool gpu list" if row.field == "count" else ""
        raise typer.BadParameter(f"{error}{more}") from None
    return value[0] if row.repeated else value


def _completed(row: Option) -> Callable[..., Any] | None:
    if row.known is not None:
        return _COMPLETED.get(row.known)
    if not row.value.examples:
        return None

    def examples(incomplete: str) -> Iterator[str]:
        return (text for text in row.value.examples if text.startswith(incomplete))

    return examples
