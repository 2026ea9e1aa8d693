"""Checks what the documentation says against what there is, without a network.

- links between pages, to headings and to files;
- `gpupool …` commands and their options, in code and in blocks of code;
- `make …` targets;
- words after `%%gpu` and `%gpu` that begin with two dashes;
- pages that no table of contents names;
- links of example notebooks to files that a copy of the notebook does not find;
- settings of the software GPU: those that its sources read and those in the table of its page.

Prints each mistake as `file:line: what`, and exits with 1 when there is one.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"\[[^\]\[]*\]\((?P<to>[^()\s]+)\)")
_CODE = re.compile(r"`([^`]+)`")
_HEADING = re.compile(r"#{1,6}\s+(?P<text>.+?)\s*#*$")


@dataclass(frozen=True, slots=True)
class Page:
    """One Markdown file: prose and code apart, each with the number of its line."""

    path: Path
    prose: tuple[tuple[int, str], ...]
    code: tuple[tuple[int, str], ...]

    @classmethod
    def read(cls, path: Path) -> Page:
        prose: list[tuple[int, str]] = []
        code: list[tuple[int, str]] = []
        fence = ""
        for number, line in enumerate(path.read_text().splitlines(), 1):
            mark = re.match(r"\s*(```+|~~~+)", line)
            if mark and not fence:
                fence = mark[1]
            elif mark and mark[1].startswith(fence) and line.strip() == mark[1]:
                fence = ""
            elif fence:
                code.append((number, line))
            else:
                prose.append((number, line))
                code.extend((number, found) for found in _CODE.findall(line))
        return cls(path, tuple(prose), tuple(code))

    def anchors(self) -> set[str]:
        """The names under which headings are linked, as the forge and the site spell them."""
        return {slug(match["text"]) for _, line in self.prose if (match := _HEADING.match(line))}


def slug(heading: str) -> str:
    """`What it costs: %gpu` → `what-it-costs-gpu`."""
    text = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", lambda found: found[1] or "", heading).lower()
    kept = (c for c in text if c in " -_" or unicodedata.category(c)[0] in "LN")
    return "".join(kept).replace(" ", "-")


def broken_links(page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    """Links to files and headings that are not there; those to the web are not looked at."""
    for number, line in page.prose:
        for match in _LINK.finditer(re.sub(_CODE, "", line)):
            target = match["to"]
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            at = (page.path.parent / file).resolve() if file else page.path
            if not at.exists():
                yield f"{number}: there is no file {target}"
            elif anchor and at in pages and anchor not in pages[at].anchors():
                yield f"{number}: {at.name} has no heading {anchor}"


def links_that_do_not_travel(notebook: Path) -> Iterator[str]:
    """Links of an example to files: `gpupool examples` copies the notebooks alone, so only they are where it is."""
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] == "markdown":
            for match in _LINK.finditer(re.sub(_CODE, "", "".join(cell["source"]))):
                target = match["to"]
                there = (notebook.parent / target).resolve()
                if re.match(r"[a-z]+:|#", target) or (there.parent == notebook.parent and there.exists()):
                    continue
                yield f"{cell['id']}: a copy of this notebook has no file {target}"


def pages_in_no_contents(pages: dict[Path, Page]) -> Iterator[str]:
    """Pages of the site that its tables of contents lead past."""
    named = {
        (page.path.parent / line.strip()).with_suffix(".md").resolve()
        for page in pages.values()
        for _, line in page.prose
        if re.fullmatch(r"[\w./-]+", line.strip())
    }
    for path in pages:
        if path.is_relative_to(ROOT / "docs") and path != ROOT / "docs" / "index.md" and path not in named:
            yield f"{path.relative_to(ROOT)}:1: no table of contents names this page"


def wrong_commands(page: Page, commands: Any, targets: set[str]) -> Iterator[str]:
    """Commands, options and targets that do not exist."""
    for number, line in page.code:
        for part in re.split(r"\||&&|;", line):
            try:
                words = shlex.split(part.replace("\\", " "), comments=True)
            except ValueError:
                words = part.split()
            while words and (words[0] in ("sudo", "$", "exec", "nohup") or re.match(r"[A-Z_]+=", words[0])):
                words = words[1:]
            if words and words[0].removeprefix(".venv/bin/") == "gpupool":
                yield from (f"{number}: {what}" for what in _wrong_options(words[1:], commands))
            elif (
                len(words) > 1
                and words[0] == "make"
                and re.fullmatch(r"[a-z-]+", words[1])
                and words[1] not in targets
            ):
                yield f"{number}: there is no target `make {words[1]}`"


def _wrong_options(words: list[str], command: Any) -> Iterator[str]:
    name = "gpupool"
    while words and getattr(command, "commands", None):
        if words[0].startswith("-"):
            break
        if not re.fullmatch(r"[a-z][a-z-]*", words[0]):
            return
        if words[0] not in command.commands:
            yield f"there is no command `{name} {words[0]}`"
            return
        command, name, words = command.commands[words[0]], f"{name} {words[0]}", words[1:]
    known = {option for given in command.params for option in (*given.opts, *given.secondary_opts)} | {
        "--help"
    }
    for word in words:
        if word == "--":
            return
        option = re.match(r"\[?(--?[a-zA-Z][a-z-]*)", word)
        if option and option[1] not in known:
            yield f"`{name}` has no option {option[1]}"


def wrong_magics(page: Page, options: set[str]) -> Iterator[str]:
    """Options of `%%gpu` that do not exist."""
    for number, line in page.code:
        if re.match(r"%%?gpu(\s|$)", line):
            for option in re.findall(r"(?<!\S)--[a-z-]+", line):
                if option not in options:
                    yield f"{number}: %%gpu has no option {option}"


def settings_read(folder: Path) -> set[str]:
    """Environment variables of the software GPU that its sources name, tests aside."""
    sources = [path for path in folder.rglob("*") if path.suffix in (".h", ".cpp")]
    return {
        name
        for path in sources
        if "tests" not in path.parts and not path.stem.endswith("_test")
        for name in re.findall(r'"(GPUPOOL_SOFTGPU_[A-Z_]+)"', path.read_text())
    }


def wrong_settings(page: Page, read: set[str]) -> Iterator[str]:
    """Variables that are read and have no row in the page's table, and rows of variables that nothing reads."""
    rows = {
        match[1]: number
        for number, line in page.prose
        if (match := re.match(r"\| `(GPUPOOL_SOFTGPU_[A-Z_]+)` \|", line))
    }
    yield from (f"1: the table of settings lacks {name}" for name in sorted(read - rows.keys()))
    yield from (f"{rows[name]}: nothing reads {name}" for name in sorted(rows.keys() - read))


def documents() -> list[Path]:
    """The pages that people write for people; those that the sources make are made right, or not at all."""
    made = ROOT / "docs" / "reference" / "generated"
    found = [*ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(path for path in found if not path.is_relative_to(made))


def main() -> int:
    import typer
    from gpupool.cli.main import app

    from jupyter_gpupool.kernel.arguments import cell_parser

    pages = {path: Page.read(path) for path in documents() if "_build" not in path.parts}
    commands = typer.main.get_command(app)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    options = {option for action in cell_parser()._actions for option in action.option_strings}
    wrong = [
        f"{page.path.relative_to(ROOT)}:{what}"
        for page in pages.values()
        for what in (
            *broken_links(page, pages),
            *wrong_commands(page, commands, targets),
            *wrong_magics(page, options),
        )
    ]
    wrong.extend(pages_in_no_contents(pages))
    settings = pages[ROOT / "docs" / "reference" / "software-gpu.md"]
    read = settings_read(ROOT / "src" / "softgpu")
    wrong.extend(f"docs/reference/software-gpu.md:{what}" for what in wrong_settings(settings, read))
    for notebook in sorted((ROOT / "examples").glob("*.ipynb")):
        wrong.extend(f"{notebook.relative_to(ROOT)}:{what}" for what in links_that_do_not_travel(notebook))
    for line in wrong:
        print(line)
    print(f"{len(pages)} pages: {len(wrong) or 'no'} mistake(s)")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
