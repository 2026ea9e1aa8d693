"""Who runs this process, as people call that user."""

from __future__ import annotations

import os
import pwd


def os_user() -> str:
    """The user's name; ``uid1000700000`` without one, as in containers with an arbitrary user id."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid{os.getuid()}"
