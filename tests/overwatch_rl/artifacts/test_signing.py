"""Signatures of manifests: one changed field, another key or another type is refused."""

import os
import stat
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overwatch.objects.digests import sha256_of
from overwatch_rl.artifacts.digests import xxh3_of
from overwatch_rl.artifacts.signing import SignatureError, Signed, Signer, Verifier, canonical, make_key


class Letter(Signed, frozen=True, kw_only=True):
    """Something to sign."""

    words: dict[str, int]
    to: str = ""


class Other(Letter, frozen=True, kw_only=True):
    """The same fields, of another type."""


def test_the_public_key_accepts_what_the_private_key_signed(tmp_path: Path) -> None:
    """Also after a way through JSON; the order in which a mapping was filled makes no difference."""
    signer = make_key(tmp_path / "signing.key")
    signed = signer.sign(Letter(words={"b": 1, "a": 2}, to="you"))
    verifier = Verifier(signer.public)

    verifier.check(msgspec.json.decode(msgspec.json.encode(signed), type=Letter))
    verifier.check(msgspec.structs.replace(signed, words={"a": 2, "b": 1}))
    assert signed.key_id == signer.key_id


@given(words=st.dictionaries(st.text(), st.integers(-(2**53), 2**53), max_size=4))
def test_a_mapping_has_one_canonical_form(words: dict[str, int]) -> None:
    """Whatever its order."""
    again = dict(reversed(list(words.items())))

    assert canonical(Letter(words=words)) == canonical(Letter(words=again))


def test_what_was_changed_is_refused(tmp_path: Path) -> None:
    """A value, a further name, the type, the key's name, the signature itself, none at all."""
    signer, stranger = make_key(tmp_path / "one"), make_key(tmp_path / "two")
    signed = signer.sign(Letter(words={"a": 1}))
    verifier = Verifier(signer.public)
    change = msgspec.structs.replace

    for wrong in (
        change(signed, words={"a": 2}),
        change(signed, words={"a": 1, "b": 1}),
        change(signed, to="me"),
        Other(words=signed.words, key_id=signed.key_id, signature=signed.signature),
        change(signed, key_id=stranger.key_id),
        change(signed, signature=stranger.sign(signed).signature),
        change(signed, signature=""),
        change(signed, signature="no base64 °"),
        stranger.sign(Letter(words={"a": 1})),
    ):
        with pytest.raises(SignatureError, match=r"signed with key|signature is not one of key"):
            verifier.check(wrong)


def test_a_verifier_accepts_each_of_its_keys(tmp_path: Path) -> None:
    """While a run changes from one to another."""
    one, two = make_key(tmp_path / "one"), make_key(tmp_path / "two")
    verifier = Verifier(one.public, two.public)

    verifier.check(one.sign(Letter(words={})))
    verifier.check(two.sign(Letter(words={})))


def test_a_key_is_made_once_and_is_its_users_alone(tmp_path: Path) -> None:
    """The second call finds it; the file can be read by nobody else, whatever the umask."""
    path = tmp_path / "run" / "signing.key"
    before = os.umask(0)
    try:
        first = make_key(path)
    finally:
        os.umask(before)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert make_key(path).public == first.public == Signer(path).public
    assert [one.name for one in path.parent.iterdir()] == ["signing.key"]


def test_two_makers_at_once_get_one_key(tmp_path: Path) -> None:
    """Neither has a key that the file does not hold."""
    found: list[str] = []
    together = threading.Barrier(8)

    def make() -> None:
        together.wait()
        found.append(make_key(tmp_path / "signing.key").public)

    makers = [threading.Thread(target=make) for _ in range(8)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()

    assert len(found) == 8
    assert len(set(found)) == 1


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """With what to do about it."""
    make_key(tmp_path / "signing.key")
    (tmp_path / "signing.key").chmod(0o640)

    with pytest.raises(ValueError, match=r"signing\.key can be read by others \(mode 640\); use `chmod 600`"):
        Signer(tmp_path / "signing.key")


def test_what_is_no_key_is_refused_by_its_name(tmp_path: Path) -> None:
    """No file, a file of something else, text that is no public key, no key at all."""
    (tmp_path / "words").write_text("words")

    with pytest.raises(ValueError, match="nowhere cannot be read: No such file"):
        Signer(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="words is no private key"):
        Signer(tmp_path / "words")
    for text in ("words", "ed25519:", "ed25519:AAAA", "ed25519:°", "rsa:" + "A" * 43 + "="):
        with pytest.raises(ValueError, match="is no public key; it is 'ed25519:'"):
            Verifier(text)
    with pytest.raises(ValueError, match="no public key is named"):
        Verifier()


def test_digests_are_the_published_ones() -> None:
    """Those of nothing, as their authors list them; parts count as one."""
    assert sha256_of(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert xxh3_of() == xxh3_of(b"") == "99aa06d3014798d86001c324468d497f"
    assert xxh3_of(b"ab", memoryview(b"c")) == xxh3_of(bytearray(b"abc")) != xxh3_of(b"acb")
