"""What the pool says to people, as data until the last moment: an id and typed parameters."""

from gpupool.sentences import param
from gpupool.sentences.param import Param
from gpupool.sentences.render import render
from gpupool.sentences.sentence import NOTHING, Sentence, clauses, plain, say, without_users

__all__ = ["NOTHING", "Param", "Sentence", "clauses", "param", "plain", "render", "say", "without_users"]
