"""What the commands of `overwatch-rl` share: how a wrong value ends them, and which episodes are unseen.

Must not know the commands.
"""

import contextlib
from collections.abc import Iterator
from typing import Final

import click

from overwatch.extras import RL, TENSORBOARD

EVALUATION_SEED: Final = 1_000_003
"""Far from the seeds of training: episodes that no policy was trained on."""


@contextlib.contextmanager
def usage_errors() -> Iterator[None]:
    """A `ValueError` of a config becomes a usage error; a missing torch says what to install."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except ModuleNotFoundError as error:
        for extra in (RL, TENSORBOARD):
            if error.name in extra.modules:
                raise click.ClickException(extra.need) from error
        raise
