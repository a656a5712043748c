"""`python -m overwatch.generate [--check]`: write the generated files, or fail if they are stale."""

import sys
from pathlib import Path

from overwatch.generate import stale_files, write_files


def main(arguments: list[str]) -> int:
    """Work in the current folder, the project's root."""
    if arguments == ["--check"]:
        stale = stale_files(Path.cwd())
        for name in stale:
            sys.stderr.write(f"{name} differs from its generator; run `make generate` and commit it\n")
        return 1 if stale else 0
    if arguments:
        sys.stderr.write(f"unknown argument {arguments[0]!r}; the only one is --check\n")
        return 2
    for name in write_files(Path.cwd()):
        sys.stdout.write(f"wrote {name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
