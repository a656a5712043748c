"""`python -m overwatch_rl.cli`."""

from overwatch_rl.cli import main

if __name__ == "__main__":
    main()
