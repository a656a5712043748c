"""`overwatch completion`: the script that makes a shell complete `overwatch`. Click makes it."""

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_OVERWATCH_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script for a shell, e.g. eval "$(overwatch completion bash)" in ~/.bashrc."""
    kind = get_completion_class(shell)
    root = context.find_root().command
    if kind is None:
        raise click.ClickException(f"no completion for {shell}")
    click.echo(kind(root, {}, "overwatch", _VARIABLE).source())
