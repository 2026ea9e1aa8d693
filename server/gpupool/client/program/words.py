"""How a command under ``gpupool run`` is told what happens to its share: it asks for nothing by itself."""

from __future__ import annotations

from typing import Final

from gpupool.client.session.words import Words


class CommandWords(Words):
    """After its lease has ended there is no way out but to start the command again."""

    way_out = ""
    reset = "This program's GPU session was ended, and its share is free again."


COMMAND_WORDS: Final = CommandWords()
