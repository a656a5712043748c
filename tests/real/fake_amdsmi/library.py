"""Builds a libamd_smi.so that the installed `amdsmi` loads: every name that it looks up is there."""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fake_amdsmi.c")


def build(folder: Path) -> Path:
    """What `ROCM_HOME` is to be; without compiler or `amdsmi` a test is skipped, or fails if it must run."""
    compiler, package = shutil.which("gcc") or shutil.which("cc"), importlib.util.find_spec("amdsmi")
    if compiler is None or package is None or package.origin is None:
        missing = "no C compiler, or no amdsmi, to build the fake libamd_smi with"
        if os.environ.get("OVERWATCH_REQUIRE_REAL"):
            pytest.fail(missing)
        pytest.skip(missing)
    wrapper = Path(package.origin).with_name("amdsmi_wrapper.py").read_text()
    wanted = set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", wrapper))
    made = set(re.findall(r"^uint32_t (\w+)\(", SOURCE.read_text(), re.MULTILINE))
    assert made <= wanted, "amdsmi has other names now"
    stubs = folder / "stubs.c"
    stubs.write_text("".join(f"int {name}(void) {{ return 2; }}\n" for name in sorted(wanted - made)))
    (folder / "lib").mkdir()
    library = folder / "lib/libamd_smi.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(SOURCE), str(stubs)], check=True)
    return folder
