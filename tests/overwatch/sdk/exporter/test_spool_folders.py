"""Where spools lie: this user's own root, safe names, orphans found."""

import os
from pathlib import Path

import msgspec
import pytest

from overwatch.journal import Signal
from overwatch.sdk.exporter.spool import Spool, SpoolMeta, orphans, read_meta, spool_folder, spool_root


def _meta(run_id: str = "ppo-1", epoch: str = "epoch", created: int = 1) -> SpoolMeta:
    return SpoolMeta(run_id=run_id, role="trainer", rank=3, epoch=epoch, pid=os.getpid(), created=created)


@pytest.mark.parametrize(
    ("env", "root"),
    [
        ({"OVERWATCH_SPOOL_DIR": "/a", "XDG_STATE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_STATE_HOME": "/b", "HOME": "/c"}, "/b/overwatch/spool"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/c"}, "/c/.local/state/overwatch/spool"),
        ({"OVERWATCH_SPOOL_DIR": "", "HOME": "/c"}, "/c/.local/state/overwatch/spool"),
    ],
)
def test_the_root_is_as_given_else_under_the_users_state(env: dict[str, str], root: str) -> None:
    """An empty variable, and a relative state folder, are as good as unset."""
    assert spool_root(env) == Path(root)


def test_a_plain_name_is_used_as_it_is() -> None:
    """Run, role, rank and epoch can be read off the folder."""
    assert spool_folder(Path("/r"), _meta("ppo.1", "0123")).name == "ppo.1-trainer-3-0123"


@pytest.mark.parametrize(
    "run_id", ["../../a", "/etc/passwd", "..", ".", "", "a/b", "a\0b", "a\nb", "é" * 300, "x" * 300, "\ud800"]
)
def test_an_unsafe_name_never_leaves_the_root(run_id: str) -> None:
    """Whatever a run is called, its folder lies directly under the root and differs from that of its kin."""
    folder = spool_folder(Path("/r"), _meta(run_id))
    assert folder.parent == Path("/r")
    assert Path(os.path.normpath(folder)) == folder
    assert len(folder.name) < 200
    assert folder.name.isascii()
    assert folder.name.isprintable()
    assert not folder.name.startswith(".")
    assert spool_folder(Path("/r"), _meta(run_id + "!")) != folder


def test_a_spool_states_whose_it_is(tmp_path: Path) -> None:
    """The note in the folder is this user's alone and reads back."""
    meta = msgspec.structs.replace(_meta(), rings="/dev/shm/rings", endpoint="http://127.0.0.1:4318")
    path = spool_folder(tmp_path / "root", meta)
    spool = Spool(path, meta=meta)

    assert not spool.degraded
    assert read_meta(path) == meta
    assert (path / "meta.json").stat().st_mode & 0o777 == 0o600
    assert path.stat().st_mode & 0o777 == 0o700


def test_orphans_are_the_spools_that_nobody_holds(tmp_path: Path) -> None:
    """Those of ended processes are listed, oldest first; held ones and what is no spool are not."""
    for created in (3, 1, 2):
        meta = _meta(epoch=str(created), created=created)
        spool = Spool(spool_folder(tmp_path, meta), meta=meta)
        spool.put(Signal.LOGS, b"x", is_fact=True, records=1, last_seq=1, rings={})
        if created != 2:
            spool.close()
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(spool_folder(tmp_path, _meta(epoch="1")))
    bad = Spool(tmp_path / "bad")
    bad.close()
    (tmp_path / "bad" / "meta.json").write_bytes(b"{")

    found = orphans(tmp_path)
    assert [orphan.meta.created for orphan in found] == [1, 3]
    assert Spool(found[0].path).books.waiting == 1
    assert orphans(tmp_path / "none") == []
