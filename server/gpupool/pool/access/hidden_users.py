"""Answers without other users' names, for pools whose users are not to know of each other (`gpupool serve --hide-users`).

All answers to such a caller pass here (`auth`), whatever service made them. Users are named in fields called ``user``,
in the ids of asks, and in sentences. The sentences that name somebody else are those of `scheduler.explain` about who
holds what; whoever writes another one adds it here.
"""

from __future__ import annotations

import re
from typing import Any, Final

#: "ann holds 0.50", "session 0123456789ab of ann", "a parked session of ann".
_HOLDS: Final = re.compile(r"(?<!\S)(\S+)(?= holds \d)")
_SESSION_OF: Final = re.compile(r"(?<=session )((?:\S+ )?of )(\S+?)(?=[;,]?(?:\s|$))")
_SOMEBODY: Final = "somebody"
_ASK_ID: Final = "gpupool.v1.QueueEntry.id"


def without_users(text: str, viewer: str) -> str:
    """The sentence, in which nobody but `viewer` has a name."""

    def unless_own(name: str) -> str:
        return name if name == viewer else _SOMEBODY

    text = _HOLDS.sub(lambda found: unless_own(found[1]), text)
    return _SESSION_OF.sub(lambda found: found[1] + unless_own(found[2]), text)


def hide(message: Any, viewer: str) -> None:
    """Takes the names of others out of a protobuf message and all in it."""
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entries = getattr(message, field.name)
            for key, entry in list(value.items()):
                if isinstance(entry, str):
                    entries[key] = without_users(entry, viewer)
                elif hasattr(entry, "ListFields"):
                    hide(entry, viewer)
        elif field.message_type is not None:
            for part in value if hasattr(value, "add") else (value,):
                hide(part, viewer)
        elif field.type == field.TYPE_STRING:
            _hide_string(message, field, value, viewer)


def _hide_string(message: Any, field: Any, value: Any, viewer: str) -> None:
    if not isinstance(value, str):
        value[:] = [without_users(text, viewer) for text in value]
    elif field.name == "user":
        setattr(message, field.name, value if value == viewer else "")
    elif field.full_name == _ASK_ID:
        setattr(message, field.name, value if value.startswith(f"{viewer}\n") else "")
    else:
        setattr(message, field.name, without_users(value, viewer))
