"""What front ends get of a sentence of the pool: the data, and the words for the widget."""

from __future__ import annotations

from gpupool.sentences import Sentence, clauses, plain

from jupyter_gpupool.server.handlers.said import said_view


def test_a_sentence_comes_with_its_words_and_what_it_says_first() -> None:
    said = clauses(plain("taken back"), plain("memory is kept"))
    view = said_view(said)
    assert Sentence.from_json(view) == said
    assert (view["text"], view["first"]) == ("taken back; memory is kept", "taken back")


def test_one_clause_is_all_that_is_said() -> None:
    view = said_view(plain("taken back"))
    assert view["text"] == view["first"] == "taken back"
