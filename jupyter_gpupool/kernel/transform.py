"""``%%gpu`` as an input transformer: one line of the cell becomes one call, the rest stays.

A cell magic that runs its body by ``run_cell`` breaks top-level ``await``, hides failures
from Run All and shifts line numbers. Here the body stays the cell: IPython compiles it as
always, so a syntax error never attaches and every traceback shows the user's own lines.

IPython transforms a cell several times before it runs it, so this must be pure.
"""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Final

#: What the first line becomes; :mod:`jupyter_gpupool.kernel.scope` provides it. A traceback shows it with what was typed.
ENTER: Final = "get_ipython().gpupool.enter({line!r})  # {typed}"
#: ``%%gpu --help`` says what ``%%gpu?`` says; what stands below it has no GPU and does not run.
HELP: Final = "get_ipython().gpupool.help({rest!r})\n"
HELP_WORDS: Final = ("help", "--help", "-h", "-?", "?")

_GPU_LINE = re.compile(r"%%gpu(?=\s|$)(?P<line>.*)", re.DOTALL)
_CELL_MAGIC = re.compile(r"%%(?P<name>\w+)(?:[ \t]+(?P<line>.*))?$")
_FUTURE = re.compile(r"from\s+__future__\s+import\s+[^\\(#]+")


def transform(lines: list[str]) -> list[str]:
    """Replaces a leading ``%%gpu …`` line; any other cell is returned as it is."""
    if not lines:
        return lines
    match = _GPU_LINE.match(lines[0])
    if match is None:
        return lines
    enter = ENTER.format(line=match["line"].strip(), typed=" ".join(["%%gpu", *match["line"].split()]))
    body = _dedented(lines[1:])
    if match["line"].split()[:1] and match["line"].split()[0] in HELP_WORDS:
        return [HELP.format(rest=bool("".join(body).strip()))]
    return _with_cell_magic(enter, body) or _with_future_import(enter, body) or [enter + "\n", *body]


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


def _with_future_import(enter: str, body: list[str]) -> list[str] | None:
    """``from __future__ import …`` must stay the first statement: the call goes behind it."""
    last = None
    for index, line in enumerate(body):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if not _FUTURE.fullmatch(text):
            break
        last = index
    if last is None:
        return None
    imports = body[last].rstrip().rstrip(";")
    return ["\n", *body[:last], f"{imports}; {enter}\n", *body[last + 1 :]]
