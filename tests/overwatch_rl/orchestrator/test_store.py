"""The store: what is written is there, versions of its tables, and transactions that end half-way."""

import sqlite3
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from overwatch_rl.orchestrator import wire
from overwatch_rl.orchestrator.store import Run, Store, Unit

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)


def _url(folder: Path) -> str:
    return f"sqlite:///{folder}/new/runs.db"


FIRST = Run(request=wire.RunRequest(config={"a": [1.5, None, "ü"]}), created_at=AT)


def test_what_was_written_is_there_in_the_next_life(tmp_path: Path) -> None:
    """Documents and times to the microsecond; folders are made."""
    heartbeat = wire.Heartbeat(run_id="r", status="running", step=2**63 - 1, loss=0.1)
    run = replace(FIRST, state="running", lineage=1, step=2**63 - 1, heartbeat=heartbeat, heartbeat_at=AT)
    store = Store(_url(tmp_path))
    with store.changing() as unit:
        unit.add_run("r", FIRST)
        unit.change_run("r", run)
    store.close()

    store = Store(_url(tmp_path))
    with store.reading() as unit:
        assert unit.run("r") == run
        assert unit.open_runs() == {"r": "running"}
    store.close()


def test_a_transaction_is_whole_or_nothing(tmp_path: Path) -> None:
    """One that raises has written nothing."""

    def fail(unit: Unit) -> None:
        unit.add_run("r", FIRST)
        raise KeyError("half-way")

    store = Store(_url(tmp_path))
    with pytest.raises(KeyError, match="half-way"), store.changing() as unit:
        fail(unit)
    with store.reading() as unit:
        assert unit.runs(None, 10) == {}
    store.close()


def test_two_transactions_never_decide_on_the_same_state(tmp_path: Path) -> None:
    """Another process that writes waits until the first has ended: no update is lost."""
    store, other = Store(_url(tmp_path)), Store(_url(tmp_path))
    with store.changing() as unit:
        unit.add_run("r", FIRST)

    def add(to: Store) -> None:
        for _ in range(50):
            with to.changing() as unit:
                run = unit.run("r")
                assert run is not None
                unit.change_run("r", replace(run, step=(run.step or 0) + 1))

    threads = [threading.Thread(target=add, args=(one,)) for one in (store, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    with store.reading() as unit:
        assert unit.run("r") == replace(FIRST, step=100)
    store.close()
    other.close()


def test_a_store_of_a_newer_version_is_refused_and_left(tmp_path: Path) -> None:
    """The error names both versions."""
    Store(_url(tmp_path)).close()
    with sqlite3.connect(tmp_path / "new" / "runs.db") as connection:
        connection.execute("UPDATE schema_version SET version = 99")
    connection.close()

    with pytest.raises(ValueError, match=r"schema version 99, this program knows 2; use the program"):
        Store(_url(tmp_path))


@pytest.mark.parametrize("url", ["nowhere", "odd://x/y"])
def test_a_url_that_is_none_names_one_that_is(url: str) -> None:
    """And what was given."""
    with pytest.raises(ValueError, match=rf"store '{url}' cannot be used: .*; write e.g. sqlite:///runs.db"):
        Store(url)


def test_a_password_is_not_shown() -> None:
    """In what the server prints."""
    store = Store("sqlite://")
    assert store.name == "sqlite://"
    store.close()
