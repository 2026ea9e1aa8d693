"""Sentences are an id and parameters until somebody reads them; the words are those of the catalogue, here and in the page."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpupool.proto.sentences import from_message, to_message
from gpupool.sentences import NOTHING, Sentence, clauses, param, plain, reasons, render, say
from gpupool.sentences.render import catalogue

ROOT = Path(__file__).resolve().parents[2]
#: What both renderers say of the same sentences; `labextension/src/__tests__/text/sentence.spec.ts` reads it, too.
GOLDEN = json.loads((ROOT / "tests/data/sentences.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["words"][:40] or "nothing")
def test_words(case) -> None:
    assert render(Sentence.from_json(case["sentence"])) == case["words"]


def test_every_sentence_of_the_catalogue_is_compared() -> None:
    assert catalogue().keys() - {case["sentence"]["code"] for case in GOLDEN} == set()


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["words"][:40] or "nothing")
def test_a_sentence_travels_as_it_is(case) -> None:
    sentence = Sentence.from_json(case["sentence"])
    assert Sentence.from_json(json.loads(json.dumps(sentence.as_json()))) == sentence
    assert from_message(to_message(sentence)) == sentence


def said() -> Iterator[tuple[str, set[str] | None]]:
    """(id, parameters) of each ``say("id", …)`` in the sources; parameters None: some are not named there."""
    for folder in (ROOT / "server/gpupool", ROOT / "jupyter_gpupool"):
        for path in folder.rglob("*.py"):
            if "say(" not in (text := path.read_text(encoding="utf-8")):
                continue
            for node in ast.walk(ast.parse(text)):
                if not isinstance(node, ast.Call) or getattr(node.func, "id", "") != "say":
                    continue
                names = {word.arg for word in node.keywords}
                for part in ast.walk(node.args[0]):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        yield part.value, None if None in names else {str(name) for name in names}


def test_what_is_said_is_in_the_catalogue_with_its_parameters() -> None:
    templates = {
        code: template if isinstance(template, str) else template["one"] + template["other"]
        for code, template in catalogue().items()
    }
    found = {code: names for code, names in said() if code in templates}
    assert len(found) > 60
    for code, names in found.items():
        wanted = set(re.findall(r"\{(\w+)", templates[code]))
        # Of help.smaller one is the size, in milli-GPU or MiB.
        assert names is None or wanted <= names, code
    written = [code for code, _ in said() if not code.endswith((".", "drain")) and "-" in code]
    assert [code for code in written if code not in templates and not code.startswith("-")] == []


def test_clauses_are_joined_once() -> None:
    first, second = plain("one"), say("would-fit", milli=param.milli(300))
    assert clauses(first, NOTHING) == first
    assert not clauses()
    assert clauses(clauses(first, second), first) == clauses(first, second, first)
    assert render(clauses(first, NOTHING, second)) == "one; 0.3 would fit now"


def test_a_reason_of_a_later_version_stands_for_itself() -> None:
    assert reasons.headline("new") == "Released (new)"
    assert reasons.because("new") == "new"
    assert reasons.ended("new") == ""
    assert reasons.gone("new") == "its session was ended (new)"
    assert reasons.headline("admin") == "Taken back by an administrator"


def test_a_kind_of_parameter_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="'colour' is no kind"):
        Sentence.from_json({"code": "plain", "params": {"words": {"kind": "colour", "value": "red"}}})
