"""``%%gpu`` as an input transformer: one line of the cell becomes one call, the rest stays.

A cell magic that runs its body by ``run_cell`` breaks top-level ``await``, hides failures
from Run All and shifts line numbers. Here the body stays the cell: IPython compiles it as
always, so a syntax error never attaches and every traceback shows the user's own lines.

IPython transforms a cell several times before it runs it, so this must be pure.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from textwrap import dedent
from typing import Final

#: What the first line becomes; :mod:`jupyter_gpupool.kernel.scope` provides it. A traceback shows it with what was typed.
ENTER: Final = "get_ipython().gpupool.enter({line!r})"
#: ``%%gpu --help`` says what ``%%gpu?`` says; what stands below it has no GPU and does not run.
HELP: Final = "get_ipython().gpupool.help({rest!r})\n"
HELP_WORDS: Final = ("help", "--help", "-h", "-?", "?")

_GPU_LINE = re.compile(r"%%gpu(?=\s|$)(?P<line>.*)", re.DOTALL)
_CELL_MAGIC = re.compile(r"%%(?P<name>\w+)(?:[ \t]+(?P<line>.*))?$")
#: Tokens that belong to no statement.
_BETWEEN = frozenset({tokenize.COMMENT, tokenize.NL})
#: What Python skips between tokens of a line.
_BLANKS: Final = " \t\f"


def transform(lines: list[str]) -> list[str]:
    """Replaces a leading ``%%gpu …`` line; any other cell is returned as it is."""
    if not lines:
        return lines
    match = _GPU_LINE.match(lines[0])
    if match is None:
        return lines
    call = ENTER.format(line=match["line"].strip())
    typed = "  # " + " ".join(["%%gpu", *match["line"].split()])
    body = _dedented(lines[1:])
    if match["line"].split()[:1] and match["line"].split()[0] in HELP_WORDS:
        return [HELP.format(rest=bool("".join(body).strip()))]
    return (
        _with_cell_magic(call + typed, body)
        or _with_future_import(call, typed, body)
        or [call + typed + "\n", *body]
    )


def _dedented(body: list[str]) -> list[str]:
    """An indented body is moved left, as IPython does with an indented cell."""
    first = next((line for line in body if line.strip()), "")
    if not first[:1].isspace():
        return body
    return dedent("".join(body)).splitlines(keepends=True)


def _with_cell_magic(enter: str, body: list[str]) -> list[str] | None:
    """``%%gpu`` above another cell magic, for instance ``%%time``: that one gets the rest."""
    at = next((index for index, line in enumerate(body) if line.strip()), None)
    if at is None:
        return None
    match = _CELL_MAGIC.match(body[at].rstrip())
    if match is None:
        return None
    if match["name"] == "gpu":
        # Two scopes in one cell say two different things about one share.
        return ["raise SyntaxError('a cell can have one %%gpu line, this one has two')\n"]
    rest = "".join(body[at + 1 :])
    call = f"get_ipython().gpupool.cell_magic({match['name']!r}, {match['line'] or ''!r}, {rest!r})"
    return [enter + "\n", *["\n"] * at, call + "\n"]


def _with_future_import(call: str, typed: str, body: list[str]) -> list[str] | None:
    """``from __future__ import …`` must stay above all but a docstring: the call goes behind the last one."""
    # As Python divides them: IPython's lines also end at a form feed, or at a separator in a string.
    lines = list(io.StringIO("".join(body), newline=None))
    last = None
    for statement in _statements(lines):
        first, second = statement[0].string, statement[1].string if len(statement) > 1 else ""
        if (first, second) == ("from", "__future__"):
            last = statement[-1].end
        elif last is not None or any(token.type != tokenize.STRING for token in statement):
            break
    if last is None:
        return None
    row, column = last
    line = lines[row - 1].removesuffix("\n")
    # Blanks at the end of the line stay: a string may go on in the next one.
    before, rest = line[:column], line[column:].lstrip(_BLANKS).removeprefix(";").lstrip(_BLANKS)
    if not rest or rest.startswith("#"):
        changed = f"{before}; {call}{typed}{'  ' if rest else ''}{rest}"
    else:
        # What follows on the line may be the beginning of a string: a comment cannot end it.
        changed = f"{before}; {call}; {rest}"
    return ["\n", *lines[: row - 1], f"{changed}\n", *lines[row:]]


def _statements(lines: list[str]) -> Iterator[list[tokenize.TokenInfo]]:
    """The simple statements at the head of a cell, as far as it is Python: IPython's own syntax comes later."""
    reader = iter(lines)
    statement: list[tokenize.TokenInfo] = []
    depth = 0
    try:
        for token in tokenize.generate_tokens(lambda: next(reader, "")):
            if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER) or (token.string == ";" and depth == 0):
                if statement:
                    yield statement
                statement = []
            elif token.type not in _BETWEEN:
                depth += (token.string in "([{") - (token.string in ")]}") if token.type == tokenize.OP else 0
                statement.append(token)
    except (tokenize.TokenError, SyntaxError):
        return
