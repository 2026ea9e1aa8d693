"""What `make lint` finds hard to read in the documentation."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_prose", ROOT / ".ci" / "check_prose.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_prose"] = module
    spec.loader.exec_module(module)
    return module


def mistakes(prose: ModuleType, text: str) -> list[str]:
    return list(prose.mistakes(text))


@pytest.mark.parametrize("count", [25, 26])
def test_a_sentence_has_at_most_25_words(prose: ModuleType, count: int) -> None:
    text = "Words " + "word " * (count - 2) + "end."
    assert [what.split(" in ")[0] for what in mistakes(prose, text)] == (
        [] if count == 25 else ["1: 26 words"]
    )


def test_code_and_addresses_are_one_word(prose: ModuleType) -> None:
    text = "Run `" + "a " * 40 + "` and read [the page](https://example.org/a?b=c) for more."
    (sentence,) = prose.sentences(text)
    assert sentence.words == 8


@pytest.mark.parametrize(
    "text",
    [
        "Who waits is told.",
        "What is idle others may use.",
        "The pool divides: who comes first is first.",
        "| a | whoever asks gets it |",
    ],
)
def test_a_clause_is_no_subject(prose: ModuleType, text: str) -> None:
    assert any("a clause is the subject" in what for what in mistakes(prose, text))


@pytest.mark.parametrize(
    "text", ["Who waits?", "If you wait, you see why.", "You see what would help.", "What-ifs are layers."]
)
def test_questions_and_objects_are_fine(prose: ModuleType, text: str) -> None:
    assert mistakes(prose, text) == []


def test_our_own_words_are_named_with_a_better_one(prose: ModuleType) -> None:
    (found,) = mistakes(prose, "The session goes on later.")
    assert "'goes on' (better: continues, resumes)" in found


def test_code_headings_and_comments_are_no_prose(prose: ModuleType) -> None:
    text = "# Who waits\n\n```\nwho waits goes on\n```\n\n<!-- who waits\ngoes on -->\n\n:::{toctree}\nwho-waits\n:::\n"
    assert mistakes(prose, text) == []


def test_items_cells_and_quotations_are_prose_of_their_own(prose: ModuleType) -> None:
    text = "- One.\n- Two\n  lines.\n\n| a cell | another |\n|---|---|\n\n> > Quoted."
    assert [(one.line, one.text) for one in prose.sentences(text)] == [
        (1, "One."),
        (2, "Two lines."),
        (5, "a cell"),
        (5, "another"),
        (8, "Quoted."),
    ]


def test_records_are_measured_and_not_checked(prose: ModuleType) -> None:
    pages = {path.relative_to(ROOT).as_posix() for path in prose.documents()}
    assert {"README.md", "docs/reference/limits/cuda.md", "CONTRIBUTING.md"} <= pages
    assert not {"CHANGELOG.md", "docs/measurements/index.md"} & pages
