"""Checks that the documentation is easy to read, also for people whose first language is not English.

Rules for each sentence of prose (text, list items and cells of tables; not code):

- at most 25 words, where code and a link's address count as one word;
- no headless clause as its subject: "If you wait, you see why", not "Who waits is told why";
- no word of our own where the field has a common one (the table `WORDS`).

`--measure PATH …` prints the figures of pages instead. Dated measurements and the changelog are records: they are
measured, but nothing asks to rewrite them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MOST_WORDS = 25

# Pages that are records of a day, and pages that a program writes.
RECORDS = ("docs/measurements/", "docs/changelog.md", "CHANGELOG.md")
WRITTEN_BY_PROGRAMS = ("docs/reference/ptx.md", "docs/reference/generated/", "docs/_build/")

HEADLESS = re.compile(r"^(?:who|whoever|whose|whom|what|whatever)\b(?!-)(?!.*\?$)", re.IGNORECASE)
HEADLESS_INSIDE = re.compile(r"[;:] (?:who|whoever|what|whatever|of what|of whom)\b(?!.*\?$)")

# Our own word, and the one that readers know.
WORDS: tuple[tuple[str, str], ...] = (
    (r"\b(?:an|the|each|every|one|new|waiting|such an) asks?\b(?! (?:for|the|you|a|about))", "request"),
    (r"\basks (?:that|of one)\b", "requests"),
    (r"\b(?:is|are|was|be) lent\b|\blent (?:out|to)\b", "in use, shared"),
    (r"\bis to be (?:said|done|made|told)\b", "say who does it: 'call …', 'set …'"),
    (r"\bgo(?:es)? on\b(?! (?:a|the|to|GitHub)\b)", "continues, resumes"),
    (r"\bof before\b", "earlier, previous"),
    (r"\bfor ever\b", "forever"),
    (r"\bbeside (?:it|them)\b", "next to it"),
    (r"\b(?:stands|stand) (?:in|under|there|below|above|still)\b", "is in, is under"),
    (r"\b(?:lies|lie) (?:in|on|there|above|below)\b", "is in, is on"),
    (r"\bby silence\b", "silently"),
    (r"\ba like (?:system|machine|one)\b", "a similar one"),
    (r"\bat hand\b", "this, current"),
    (r"\b(?:Whoever|whoever)\b", "anyone who, users who"),
    (r"\bis (?:said|told) (?:why|what|who|where|how)\b", "you see why"),
    (r"\b(?:who|that) is no\b", "isn't a"),
    (r"\bnobody waits for\b", "asynchronous"),
    (r"\bpieces? of before\b|\bas ever\b", "as before"),
    (r"\bbring(?:s)? PTX\b", "ship PTX"),
    (r"\bis no (?:use|time|project|user|obstacle|activity)\b", "isn't"),
)

_PASSIVE = re.compile(
    r"\b(?:am|is|are|was|were|be|been|being)\s+(?:\w+ly\s+|not\s+|never\s+|always\s+|also\s+)?"
    r"(?:\w+ed|done|made|kept|told|said|given|taken|held|lost|sent|seen|shown|known|written|read|run|put|set|found|"
    r"begun|built|bound|chosen|drawn|left|meant|paid|cut|lent|understood|split|spread)\b",
    re.IGNORECASE,
)
_ABBREVIATIONS = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf|approx)\.")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence with the line on which its paragraph, item or cell begins."""

    line: int
    text: str

    @property
    def words(self) -> int:
        """Words with a letter or a digit in them."""
        return len(re.findall(r"[^\s]*[^\W_][^\s]*", self.text))


def _plain(text: str) -> str:
    text = re.sub(r"``[^`]+``|`[^`]*`", "CODE", text)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\{[a-z-]+\}", "", text)
    text = re.sub(r"<[^>]+>", " ", text)
    return _ABBREVIATIONS.sub(
        lambda found: found[0].replace(".", ""), text.replace("**", "").replace("*", "")
    )


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, items of lists and cells of tables, each with its first line; code and headings left out."""
    gathered: list[str] = []
    begun = 0
    fence = ""
    comment = False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        mark = re.match(r"\s*(```+|~~~+|:::+)", line)
        if fence:
            if mark and mark[1].startswith(fence):
                fence = ""
            continue
        if mark:
            if gathered:
                yield begun, " ".join(gathered)
            gathered = []
            # A directive in colons holds prose, unless it is a table of contents.
            if not mark[1].startswith(":") or re.search(r"\{(toctree|eval-rst|auto|include)", line):
                fence = mark[1]
            continue
        if comment or line.lstrip().startswith("<!--"):
            comment = "-->" not in line
            continue
        # A quotation is prose like any other.
        stripped = re.sub(r"^(?:> ?)+", "", line.strip()).strip()
        is_row = stripped.startswith("|")
        is_item = re.match(r"(?:[-*+]|\d+\.)\s+", stripped)
        if not stripped or is_row or is_item or stripped.startswith("#"):
            if gathered:
                yield begun, " ".join(gathered)
            gathered = []
        if is_row:
            if not re.fullmatch(r"[|:\- ]+", stripped):
                cells = re.split(r"(?<!\\)\|", stripped.strip("|"))
                yield from ((number, cell.strip()) for cell in cells if cell.strip())
            continue
        if not stripped or stripped.startswith("#"):
            continue
        if not gathered:
            begun = number
        gathered.append(stripped[is_item.end() :] if is_item else stripped)


def sentences(text: str) -> Iterator[Sentence]:
    """All sentences of a page."""
    for line, block in blocks(text):
        plain = _plain(block).strip()
        # Closing quotes and brackets belong to the sentence.
        for part in re.split(r"(?<=[.!?])[\"')\]]*\s+(?=\S)", plain):
            if part and part.strip():
                yield Sentence(line, part.strip())


def mistakes(text: str) -> Iterator[str]:
    """What a page's sentences break: `line: what is wrong`."""
    for sentence in sentences(text):
        start = " ".join(sentence.text.split()[:6])
        if sentence.words > MOST_WORDS:
            yield f"{sentence.line}: {sentence.words} words in one sentence: {start} …"
        if HEADLESS.match(sentence.text) or HEADLESS_INSIDE.search(sentence.text):
            yield f"{sentence.line}: a clause is the subject (write If, When, or name the thing): {start} …"
        for pattern, better in WORDS:
            if found := re.search(pattern, sentence.text):
                yield f"{sentence.line}: {found[0]!r} (better: {better}): {start} …"


def is_checked(path: Path) -> bool:
    """Whether people write this page for other people to read today."""
    name = path.relative_to(ROOT).as_posix()
    return not name.startswith((*RECORDS, *WRITTEN_BY_PROGRAMS))


def documents() -> list[Path]:
    """The pages of the site, and those that a forge shows."""
    found = [*ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(path for path in found if is_checked(path))


def measure(paths: list[Path]) -> str:
    """One line of figures: sentences, words in each, shares of long, headless and passive ones."""
    found = [sentence for path in paths for sentence in sentences(path.read_text())]
    # Names and figures in tables are no sentences.
    found = [sentence for sentence in found if sentence.words > 3]
    total = len(found) or 1
    words = sum(sentence.words for sentence in found)
    long = sum(sentence.words > MOST_WORDS for sentence in found)
    headless = sum(bool(HEADLESS.match(one.text) or HEADLESS_INSIDE.search(one.text)) for one in found)
    passive = sum(bool(_PASSIVE.search(one.text)) for one in found)
    own = sum(any(re.search(pattern, one.text) for pattern, _ in WORDS) for one in found)
    return (
        f"{len(found)} sentences, {words / total:.1f} words each, over {MOST_WORDS} words {100 * long / total:.1f} %, "
        f"headless {headless} ({100 * headless / total:.1f} %), own words {own} ({100 * own / total:.1f} %), "
        f"passive {100 * passive / total:.1f} %"
    )


def main(arguments: list[str]) -> int:
    """Print what is wrong, or with `--measure` the figures."""
    if arguments[:1] == ["--measure"]:
        paths = [Path(name).resolve() for name in arguments[1:]] or documents()
        for path in paths:
            print(f"{path.name}: {measure([path])}")
        print(f"all: {measure(paths)}")
        return 0
    paths = [Path(name).resolve() for name in arguments] or documents()
    wrong = [f"{path.relative_to(ROOT)}:{what}" for path in paths for what in mistakes(path.read_text())]
    for line in wrong:
        print(line)
    print(f"{len(paths)} pages of prose: {len(wrong) or 'no'} mistake(s)")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
