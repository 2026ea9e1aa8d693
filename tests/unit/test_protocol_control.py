"""Control messages are rows of the protocol table (src/protocol/controls.py)."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src" / "protocol"))

import controls
import emit_wire
import kinds

ROWS = """
[control.greet]
number = 1
class = "ask"
door = true
means = "it begins"
reply = "Greeting"
[control.wait]
number = 3
class = "ask"
again = "waits"
alone = true
means = "until it is over"
[control.told]
number = 2
class = "push"
numbered = false
means = "something is so"
fields = "Item"
[record.Greeting]
means = "What is answered."
fields.mood = "Mood"
fields.name = "text[20]"
fields.items = "Item[3]"
[record.Item]
means = "One of several."
fields.size = { type = "u16", means = "in bytes" }
fields.good = "bool"
[enum.Mood]
calm = "nothing happens"
busy = "something does"
"""


def parsed(text: str) -> controls.Controls:
    return controls.parse(tomllib.loads(text))


def test_rows_become_messages_and_records() -> None:
    found = parsed(ROWS)
    assert [(m.name, m.number, m.kind, m.fields, m.reply) for m in found.messages] == [
        ("greet", 1, "ask", "", "Greeting"),
        ("told", 2, "push", "Item", ""),
        ("wait", 3, "ask", "", ""),
    ]
    assert [r.name for r in found.records] == ["Item", "Greeting"], "what a record is made of comes first"


def test_what_the_rows_say_becomes_cpp() -> None:
    found = parsed(ROWS)
    ids = emit_wire.control_ids(found)
    assert "told = 2,  ///< worker -> client, unasked Item: something is so" in ids

    def trait(name: str) -> str:
        return ids[ids.index(f"bool {name}(") :].split("return true")[0]

    assert "Control::greet:" in trait("at_door") and "Control::told:" not in trait("at_door")
    assert "Control::told:" in trait("of_connection")
    assert "Control::wait:" in trait("answered_alone")
    assert "Control::wait:" in trait("only_waits")
    bodies = emit_wire.control(found)
    assert "if (value_mood > 1) return false;" in bodies
    assert "if (out.name.size() > most_name) return false;" in bodies
    assert "if (count_items > most_items) return false;" in bodies
    assert "std::uint16_t size = 0;  ///< in bytes" in bodies


def test_every_body_is_decoded_in_both_tests() -> None:
    rows = controls.load()
    bodies = {name for m in rows.messages for name in (m.fields, m.reply)} - {""}
    test, decoders = emit_wire.control_test(rows), emit_wire.control_decoders(rows)
    for name in bodies:
        assert f"check_mutations<{name}>" in test and f"check_truncations<{name}>" in test
        assert f"&decodes_as<{name}>," in decoders


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('class = "push"', 'class = "shout"', "control told: who says it"),
        ("number = 2", "number = 64", "control told: numbers of control messages"),
        ("number = 2", "number = 1", "control (told|greet): (told|greet) has the number 1"),
        ('means = "something is so"', 'means = ""', "control told: it does not say what it means"),
        ('means = "something is so"', 'means = "x"\nloud = true', r"control told: unknown keys \['loud'\]"),
        ('fields = "Item"', 'fields = "Thing"', "control told: there is no record 'Thing'"),
        ('fields = "Item"', 'fields = "Item"\nalone = true', "control told: nobody waits for an answer"),
        ("door = true", 'door = true\nfields = "Item"', "control greet: its body is that of HELLO"),
        ("door = true", "numbered = false", "control greet: answers are found by the number"),
        ('again = "waits"', 'again = "reads"', "control wait: unknown again 'reads'"),
        ('"Mood"', '"Feeling"', "record Greeting: unknown type 'Feeling' of mood"),
        ('"Item[3]"', '"Item"', "record Greeting: how many items at most"),
        ('"Item[3]"', '"u32[3]"', "record Greeting: items: lists are of records"),
        ('"bool"', '"Greeting[2]"', "record Item: good holds what it is part of"),
        ('"bool"', "{ means = 'so' }", "record Item: what is good"),
        ('means = "One of several."\n', "", "record Item: it has `means` and `fields`"),
        ("[enum.Mood]", "[enum.Other]\na = 'b'\n[enum.Mood]", r"nothing is made of \['Other'\]"),
    ],
)
def test_undecided_rows_are_build_errors(old: str, new: str, complaint: str) -> None:
    assert old in ROWS
    with pytest.raises(kinds.TableError, match=complaint):
        parsed(ROWS.replace(old, new, 1))
