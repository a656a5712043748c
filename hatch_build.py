"""Compiles the short ways into the rings when Overwatch is built; without a C compiler it is built without.

`OVERWATCH_PURE_PYTHON=1` leaves them out on purpose: then one wheel is for every machine.
"""

import os
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME: Final = "_compiled"
FOLDER: Final = "overwatch/sdk/rings"


class CompileHook(BuildHookInterface):
    """Adds the compiled module to a wheel, or puts it beside its source for an editable install."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, if anything can."""
        if os.environ.get("OVERWATCH_PURE_PYTHON"):
            return
        is_editable = version == "editable"
        source = Path(self.root, "src", FOLDER)
        target = source if is_editable else Path(self._folder())
        built = self._compile(source, target)
        if built is not None and not is_editable:
            build_data["force_include"][str(built)] = f"{FOLDER}/{built.name}"
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Leave nothing behind."""
        if self._made is not None:
            self._made.cleanup()

    _made: tempfile.TemporaryDirectory[str] | None = None

    def _folder(self) -> str:
        self._made = tempfile.TemporaryDirectory(prefix="overwatch-build-")
        return self._made.name

    def _compile(self, source: Path, target: Path) -> Path | None:
        """The module that was made in `target`; `None`, and why, where none could be."""
        built = target / f"{NAME}{sysconfig.get_config_var('EXT_SUFFIX')}"
        built.unlink(missing_ok=True)
        try:
            from setuptools import Distribution, Extension
            from setuptools.command.build_ext import build_ext
            from setuptools.errors import BaseError, CCompilerError
        except ImportError as error:
            self.app.display_warning(f"built without compiled rings: {error}")
            return None
        made = Extension(NAME, [str(source / f"{NAME}.c")], extra_compile_args=["-O2"])
        command = build_ext(Distribution({"name": NAME, "ext_modules": [made]}))
        with tempfile.TemporaryDirectory() as objects:
            command.build_lib, command.build_temp = str(target), objects
            try:
                command.ensure_finalized()
                command.run()
            except (BaseError, CCompilerError, OSError) as error:
                self.app.display_warning(f"built without compiled rings: {error}")
                return None
        return built
