"""The end of certificates, as `openssl` reads it."""

import subprocess
from datetime import datetime
from pathlib import Path

import pytest

from overwatch.collector.tls import first_end
from tests.overwatch.collector.pki import OPENSSL, authority, signed

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="no openssl to make certificates with")


def made(folder: Path, *words: str) -> str:
    """A certificate of its own authority."""
    command = [
        str(OPENSSL),
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "k",
        "-subj",
        "/CN=x",
    ]
    subprocess.run([*command, "-out", "c.pem", *words], cwd=folder, check=True, capture_output=True)
    return (folder / "c.pem").read_text()


def by_openssl(folder: Path) -> float:
    """What `openssl` reads in the same file."""
    command = [str(OPENSSL), "x509", "-in", "c.pem", "-noout", "-enddate"]
    shown = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    text = shown.strip().removeprefix("notAfter=").replace("GMT", "+0000")
    return datetime.strptime(text, "%b %d %H:%M:%S %Y %z").timestamp()


@pytest.mark.parametrize("days", ["1", "365", "40000"])
def test_the_end_is_that_of_openssl(days: str, tmp_path: Path) -> None:
    """Beyond 2049 it is written in another form."""
    assert first_end(made(tmp_path, "-days", days)) == by_openssl(tmp_path)


def test_of_several_the_first_end_counts(tmp_path: Path) -> None:
    """A chain holds until one of it does not."""
    late, soon = made(tmp_path, "-days", "30"), made(tmp_path, "-days", "3")

    assert first_end(late + "between\n" + soon) == first_end(soon) == by_openssl(tmp_path)


def test_a_signed_certificate_has_an_end(tmp_path: Path) -> None:
    """With extensions and another issuer."""
    authority(tmp_path, "ca")
    signed(tmp_path, "c")

    assert first_end((tmp_path / "c.pem").read_text()) == by_openssl(tmp_path)


@pytest.mark.parametrize("cut", [0, 1, 40, 200])
def test_what_is_no_certificate_has_no_end(cut: int, tmp_path: Path) -> None:
    """Nothing is raised for what was cut off, is empty, or is no base64."""
    body = made(tmp_path).splitlines()[1:-1]
    text = "".join(body)[: cut // 4 * 4]
    for inside in (text, "????", ""):
        wrapped = f"-----BEGIN CERTIFICATE-----\n{inside}\n-----END CERTIFICATE-----\n"
        assert first_end(wrapped) is None
