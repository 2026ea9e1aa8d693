"""Answers without other users' names, for pools whose users are not to know of each other (`gpupool pool serve --hide-users`).

All answers to such a caller pass here (`auth`), whatever service made them. Users are named in fields called ``user``, in
the ids of requests, and in the data of lines of the journal; in sentences each is a parameter of its own kind, so nothing is
looked for in prose.
"""

from __future__ import annotations

import json
from typing import Any, Final

#: Where a name is the beginning of an id.
_REQUEST_ID: Final = "gpupool.v1.QueueEntry.id"
#: JSON, of which some fields tell of others.
_DATA: Final = "gpupool.v1.JournalLine.data_json"
#: Texts that are or begin with a name, in facts and in the data of lines.
_NAMES: Final = frozenset({"user", "by", "for_user"})
#: What else tells one of others' requests from another.
_OF_OTHERS: Final = frozenset({"for_key"})


def hide(message: Any, viewer: str) -> None:
    """Takes the names of others out of a protobuf message and all in it."""
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for key, entry in list(value.items()):
                if hasattr(entry, "ListFields"):
                    hide(entry, viewer)
                elif key in _NAMES and entry != viewer:
                    del value[key]
        elif field.message_type is not None:
            for part in value if hasattr(value, "add") else (value,):
                hide(part, viewer)
        elif field.name == "user":
            setattr(message, field.name, value if value == viewer else "")
        elif field.full_name == _REQUEST_ID:
            setattr(message, field.name, value if value.startswith(f"{viewer}\n") else "")
        elif field.full_name == _DATA:
            setattr(message, field.name, json.dumps(_of_own(json.loads(value), viewer), sort_keys=True))


def _of_own(data: dict[str, Any], viewer: str) -> dict[str, Any]:
    """What a line says, without whom it is for if that is somebody else."""
    foreign = {name for name in _NAMES if data.get(name, viewer) != viewer}
    return {
        name: value
        for name, value in data.items()
        if name not in foreign and not (name in _OF_OTHERS and "for_user" in foreign)
    }
