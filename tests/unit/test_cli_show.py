"""Tables of other people's words: no markup, no escape sequences, on the way in and on the way out."""

from __future__ import annotations

import pytest
from gpupool.cli import exits, show
from gpupool.pool import validate
from gpupool.proto import pool_pb2 as pb
from gpupool.text import printable

ESCAPES = "\x1b]0;mine\x07\x9b31m\u202egnp\u2028\x00"


@pytest.mark.parametrize("label", ["[/tmp/x]", "notes[draft].ipynb", "[red]alarm[/red]", ":smile:", "日本語"])
def test_cells_are_shown_as_they_were_written(capsys: pytest.CaptureFixture[str], label: str) -> None:
    lines = show.table("SESSION", "WHAT")
    lines.add("s1", label)
    show.console().print(lines)
    assert label in capsys.readouterr().out


def test_what_would_steer_a_terminal_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    lines = show.table("WHAT")
    lines.add(f"a{ESCAPES}z")
    show.console().print(lines)
    exits.say(f"a{ESCAPES}z")
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert r"a\x1b]0;mine\x07\x9b31m\u202egnp\u2028\x00z" in text
        assert not set(text) & set("\x1b\x07\x9b\u202e\u2028\x00")


def test_colours_are_the_programs_own(capsys: pytest.CaptureFixture[str]) -> None:
    lines = show.table("CHECK", "STATUS")
    lines.add("pool", show.coloured("ok", "green"))
    console = show.console()
    console.print(lines)
    assert "ok" in capsys.readouterr().out
    assert show.coloured("[ok]\x1b", "green").plain == r"[ok]\x1b"


@pytest.mark.parametrize("text", ["", "plain", "zwölf µs", "👩\u200d🔬", "می\u200cخواهم", r"back\slash"])
def test_other_text_is_left_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_the_pool_keeps_no_text_that_steers_terminals() -> None:
    message = pb.RequestLease(milli=200, idempotency_key="k", label=f"a{ESCAPES}", holder="h\n\x1b[2J")
    event = validate.request(message, "ann", 0.0)
    assert printable(event.label) == event.label
    assert event.holder == r"h\n\x1b[2J"
    message.idempotency_key = "k\x9b"
    with pytest.raises(validate.BadInput, match="idempotency_key"):
        validate.request(message, "ann", 0.0)


@pytest.mark.parametrize("user", ["", "a b", "a\x9b", "a\u202e", "a\n", "x" * 129])
def test_names_of_users_hold_nothing_of_the_kind(user: str) -> None:
    assert not validate.is_user(user)
    assert validate.is_user("zoë@example.org")
