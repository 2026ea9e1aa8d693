"""Every event and every record comes back from the ledger as it went in, and nothing that decides is forgotten."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpupool.ledger import plain
from gpupool.ledger.recorder import RECORDED
from gpupool.model import events
from gpupool.model.state import State
from gpupool.model.table import Table
from gpupool.sentences import NOTHING, Sentence, clauses, param, say
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

st.register_type_strategy(
    Sentence,
    st.sampled_from([NOTHING, say("arrived"), clauses(say("arrived"), say("holds", user=param.user("ann")))]),
)


def kinds_of_events(kind: type[events.Event] = events.Event) -> list[type[events.Event]]:
    """All that the machine may be given: those without others below them."""
    below = kind.__subclasses__()
    return [leaf for sub in below for leaf in kinds_of_events(sub)] if below else [kind]


st.register_type_strategy(float, st.floats(allow_nan=False, width=64))
KINDS: list[type[Any]] = [*kinds_of_events(), *RECORDED.values()]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_comes_back_as_it_was(kind: type[Any], data: st.DataObject) -> None:
    value = data.draw(st.from_type(kind))
    texts: dict[str, str] = {}

    def intern(text: str) -> str:
        texts[f"name of {text}"] = text
        return f"name of {text}"

    written = json.loads(json.dumps(plain.record(value, intern)))
    again = plain.make(kind, written, texts.__getitem__)
    assert plain.record(again, intern) == plain.record(value, intern)
    if kind not in plain.LEFT_OUT and "Usage" not in repr(value) and "Decision" not in repr(value):
        assert again == value


def test_every_table_of_the_state_is_recorded() -> None:
    tables = {name for name, value in vars(State()).items() if isinstance(value, Table)}
    assert tables == {*RECORDED, "keys"}, "keys follow from the leases"


def test_what_is_left_out_is_there_to_be_left_out() -> None:
    for kind, names in plain.LEFT_OUT.items():
        assert names <= set(kind.__dataclass_fields__)
