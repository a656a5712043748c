"""What the tests of clusters share."""

from tests.overwatch_rl.servers import moto_address, redis_server

__all__ = ["moto_address", "redis_server"]
