"""A real server that speaks S3."""

from tests.overwatch_rl.servers import moto_address

__all__ = ["moto_address"]
