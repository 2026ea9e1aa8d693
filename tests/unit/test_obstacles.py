"""Why a session's memory cannot be moved: ids of the worker, each with a sentence."""

from __future__ import annotations

from gpupool.sentences import param, say
from gpupool.sentences.obstacles import because, is_known, moving, parking, sentences
from gpupool.sentences.render import catalogue


def test_what_keeps_memory_where_it_is_is_said_with_its_cause() -> None:
    assert parking("graphs") == say("memory.stays-on-device", why=say("obstacle.graphs"))
    assert moving("graphs") == say("memory.stays-in-node", why=say("obstacle.graphs"))


def test_what_matters_more_is_said_first_and_nothing_where_nothing_stands_in_the_way() -> None:
    assert sentences("", "") == ()
    assert sentences("", "arrays") == (moving("arrays"),)
    assert sentences("managed", "arrays") == (parking("managed"), moving("arrays"))


def test_an_obstacle_of_a_later_version_stands_for_itself() -> None:
    assert not is_known("new")
    assert because("new") == say("obstacle", name=param.text("new"))
    assert "obstacle" in catalogue()
