"""Whatever happens in a pool whose users are not to know of each other: nothing that a user is told names anybody else.

The stories are those of the other tests of the pool; after each of their steps every answer that each user could get is
looked at.
"""

from __future__ import annotations

from gpupool.proto.sentences import from_message
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant

from tests.property.test_pool_fairness import NODES, PROJECTS, FairPool
from tests.property.test_pool_machine import USERS, PoolStory
from tests.support import answers

#: Who gives orders in the stories.
ADMINISTRATOR = "root"
SETTINGS = settings(stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck))


class Watched:
    """Looks at all answers after each step of a story."""

    users: tuple[str, ...]
    heard = 0
    read = 0

    @invariant()
    def nobody_is_named_to_others(self) -> None:
        world = getattr(self, "world", None)
        if world is None:
            return
        everybody = {*self.users, ADMINISTRATOR}
        for viewer in self.users:
            said = [
                *answers.lists(world, viewer),
                *answers.told(world, viewer, self.heard),
                *answers.journal(world, viewer, self.read),
            ]
            for message in said:
                assert not answers.names_in(message, viewer, everybody), message
        self.heard, self.read = len(world.told), len(world.journal)


class HiddenStory(Watched, PoolStory):
    """Outages, resizes, gangs, memory that moves, quotas."""

    users = USERS


class HiddenFairPool(Watched, FairPool):
    """Leases taken back for others and moved for them, limits of projects, nodes that are emptied."""

    users = tuple(f"u-{path}" for path in PROJECTS)

    def teardown(self):
        """What is promised in the end, the other test looks at."""


TestHiddenStory = HiddenStory.TestCase
TestHiddenStory.settings = settings(SETTINGS, max_examples=15)
TestHiddenFairPool = HiddenFairPool.TestCase
TestHiddenFairPool.settings = settings(SETTINGS, max_examples=15)


def test_the_stories_do_tell_users_of_others() -> None:
    """Else the test above would hold of a pool that says nothing."""
    story = HiddenFairPool()
    story.start((2, 1), (4, 4, 0, 0), [("A", 1000), ("A", 1000), ("A", 1000)], 0.25, 0.0, (None,) * 4)
    story.ask("B", 1000, "interactive", None, 0.0, 1)
    story.a_node_is_emptied_for_a_while(evict=True, name=NODES[0])
    story.nobody_is_named_to_others()
    world = story.world
    seen = [*answers.lists(world, "u-B"), *answers.told(world, "u-B"), *answers.journal(world, "u-A")]
    named = {user for message in seen for user in ("u-A", "u-B", ADMINISTRATOR) if user in str(message)}
    assert named == {"u-A", "u-B", ADMINISTRATOR}
    (place, *_) = [
        message for message in answers.told(world, "u-B") if message.DESCRIPTOR.name == "QueuePlace"
    ]
    assert "u-A" in str(from_message(place.said))
    assert not answers.names_in(place, "u-B", {"u-A"})
    assert "another user" in str(from_message(place.said))
