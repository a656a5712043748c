"""From flags of the replay server to its tables: what is usual, and what is refused by name."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from overwatch_rl.cli import main
from overwatch_rl.replay.settings import table_config


def test_every_key_reaches_the_table() -> None:
    """In its own unit; without a word more than its name a table is as its kind has it."""
    usual, drawn = table_config("experience"), table_config("dqn:kind=steps")
    config = table_config("t:kind=sequences,remover=oldest,items=9,mib=2,lease_s=5")
    steps = table_config("s:kind=steps,samples_per_insert=0.5,min_steps=3,buffer=7,alpha=0.2")

    assert (usual.kind, usual.selector, usual.remover) == ("sequences", "fifo", "refuse")
    assert (drawn.kind, drawn.selector, drawn.remover) == ("steps", "uniform", "oldest")
    assert (config.remover, config.capacity.items, config.capacity.bytes) == ("oldest", 9, 2 << 20)
    rate = steps.rate
    assert (rate.samples_per_insert, rate.min_steps, rate.buffer) == (0.5, 3, 7.0)
    assert (steps.priorities.alpha, config.lease_s) == (0.2, 5.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the name is"),
        ("../t", "the name is"),
        ("t:size=3", "size"),
        ("t:items=many", "items"),
        ("t:items=0", "at least an item"),
        ("t:kind=heap", "none of sequences, steps"),
        ("t:durability=fsync", "durability is no key any more.*--replay redis://"),
        ("t:memory_mib=1", "memory_mib is no key any more"),
        ("t:kind=steps,samples_per_insert=nan", "samples per insert"),
        ("t:samples_per_insert=1", "sequences are leased once"),
        ("t:alpha=2", "alpha"),
        ("t:lease_s=0", "lease_s"),
    ],
)
def test_a_wrong_table_is_refused_with_its_text(text: str, words: str) -> None:
    """And with what is wrong."""
    with pytest.raises(ValueError, match=words) as error:
        table_config(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--table", "a", "--table", "a:items=3"], "'a' is given twice"),
        (["--listen", "nowhere"], "host:port"),
        (["--listen", "0.0.0.0:0"], "--token-file"),
        (["--tls-cert", __file__], "--tls-key"),
        (["--tls-client-ca", __file__], "--tls-cert"),
        (["--max-wait-s", "inf"], "max-wait-s"),
        (["--endpoint", "collector"], "endpoint"),
        (["--table", "t:durability=fast"], "in memory"),
        (["--table", "t:selector=uniform"], "is not fifo"),
    ],
)
def test_flags_that_cannot_be_served_are_errors_of_use(flags: list[str], words: str) -> None:
    """Before anything is opened or bound."""
    done = CliRunner().invoke(main, ["replay-server", "--no-telemetry", *flags])
    assert done.exit_code == 2, done.output
    assert words in " ".join(done.output.split())


def test_a_file_gives_options_and_a_flag_comes_before_it(tmp_path: Path) -> None:
    """By the names of the flags; tables are a list."""
    file = tmp_path / "replay.toml"
    file.write_text('listen = "nowhere"\ntable = ["a", "a"]\n')
    command = ["replay-server", "--no-telemetry", "--config", str(file)]
    assert "host:port" in CliRunner().invoke(main, command).output
    assert "given twice" in CliRunner().invoke(main, [*command, "--listen", "127.0.0.1:0"]).output
