"""The flight's protocol buffers: from a `.proto` to Python, by protoc of grpcio-tools.

A development tool only: what is made needs protobuf alone. The line of protoc that demands a runtime as new
as the compiler is left out, since the file uses nothing that older ones lack. Must not know any message.
"""

import re
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

_SRC: Final = Path(__file__).parents[2]
SOURCES: Final = ("overwatch_rl/protos/replay/v1/replay.proto",)
"""Below src."""
_NOTE: Final = "# Made by `make generate` from {source}; edit that.\n"
_NEWEST_RUNTIME: Final = re.compile(
    r"^# Protobuf Python Version:.*\n|^from google.protobuf import runtime_version .*\n"
    r"|^_runtime_version\.ValidateProtobufRuntimeVersion\([^)]*\)\n",
    re.MULTILINE,
)


class NoCompilerError(RuntimeError):
    """grpcio-tools is missing, or protoc refused a source."""


def _files() -> dict[str, Callable[[], str]]:
    """Path below the project's root to what makes its text."""
    return {
        f"src/{source.removesuffix('.proto')}_pb2{suffix}": partial(_text, source, suffix)
        for source in SOURCES
        for suffix in (".py", ".pyi")
    }


def _text(source: str, suffix: str) -> str:
    return _compiled(source)[suffix]


@cache
def _compiled(source: str) -> Mapping[str, str]:
    try:
        from grpc_tools import protoc
    except ModuleNotFoundError as error:
        raise NoCompilerError(
            "protocol buffers are compiled by grpcio-tools; pip install grpcio-tools"
        ) from error
    with tempfile.TemporaryDirectory() as folder:
        command = ["protoc", f"-I{_SRC}", f"--python_out={folder}", f"--pyi_out={folder}", source]
        if protoc.main(command) != 0:
            raise NoCompilerError(f"protoc refuses src/{source}; its reason is above")
        made = Path(folder, source.removesuffix(".proto") + "_pb2.py")
        return {
            ".py": _NOTE.format(source=source) + _NEWEST_RUNTIME.sub("", made.read_text(encoding="utf-8")),
            ".pyi": _NOTE.format(source=source) + made.with_suffix(".pyi").read_text(encoding="utf-8"),
        }


FILES: Final = MappingProxyType[str, Callable[[], str]](_files())
