"""What the tests of learners share."""

from tests.overwatch_rl.servers import moto_address

__all__ = ["moto_address"]
