"""The table of kinds: how each kind of storage is made.

Owns one row per kind. Must not know what tables do.
"""

from typing import Final

from overwatch_rl.replay.base import Maker
from overwatch_rl.replay.sequences import Sequences
from overwatch_rl.replay.steps import Steps

KINDS: Final[dict[str, Maker]] = {"sequences": Sequences, "steps": Steps}
"""Kinds of storage by name."""
