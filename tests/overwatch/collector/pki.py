"""Certificates made for a test by the `openssl` command."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

OPENSSL: Final = shutil.which("openssl")
_NEW: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def authority(folder: Path, name: str) -> None:
    """`<name>.pem` and `<name>.key` of an authority."""
    made = ("-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}", "-days", "2")
    _openssl(folder, "req", "-x509", *_NEW, *made, "-addext", "keyUsage=critical,keyCertSign")


def signed(
    folder: Path, name: str, *, by: str = "ca", extension: str = "subjectAltName=IP:127.0.0.1"
) -> None:
    """`<name>.pem` and `<name>.key`, signed by an authority of the folder."""
    (folder / f"{name}.ext").write_text(extension)
    _openssl(folder, "req", *_NEW, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    made = ("-CA", f"{by}.pem", "-CAkey", f"{by}.key", "-CAcreateserial", "-out", f"{name}.pem")
    _openssl(folder, "x509", "-req", "-in", f"{name}.csr", *made, "-days", "2", "-extfile", f"{name}.ext")


def _openssl(folder: Path, *arguments: str) -> None:
    assert OPENSSL is not None
    subprocess.run([OPENSSL, *arguments], cwd=folder, check=True, capture_output=True)
