"""The extras of the distribution: what each brings, the packages that it is made of, how it is installed.

Rules: a part that lacks its packages names the extra where it is missed, in one line, and costs nothing else.
Must not know the parts.
"""

import importlib.util
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """One extra, by its name in `pip install "esper-overwatch[NAME]"`."""

    name: str
    brings: str
    """As the subject of "needs textual"."""
    modules: tuple[str, ...]
    """What its packages are imported as."""

    @property
    def install(self) -> str:
        """The command that installs it."""
        return f'pip install "esper-overwatch[{self.name}]"'

    @property
    def missing(self) -> tuple[str, ...]:
        """Modules that are not installed."""
        return tuple(name for name in self.modules if importlib.util.find_spec(name) is None)

    @property
    def need(self) -> str:
        """What is missing, and the fix, in a line."""
        return f"{self.brings} needs {' and '.join(self.missing or self.modules)}; {self.install}"


TUI: Final = Extra(name="tui", brings="the terminal screen", modules=("textual",))
GPU: Final = Extra(name="gpu", brings="reading of NVIDIA GPUs", modules=("pynvml",))
AMD: Final = Extra(name="amd", brings="reading of AMD GPUs", modules=("amdsmi",))
PARQUET: Final = Extra(name="parquet", brings="the format parquet", modules=("pyarrow",))
SQL: Final = Extra(name="sql", brings="query --sql", modules=("duckdb",))
STORE: Final = Extra(name="store", brings="an object store", modules=("obstore",))
RL: Final = Extra(name="rl", brings="training", modules=("torch", "sklearn", "safetensors"))
WANDB: Final = Extra(name="wandb", brings="the tracker W&B", modules=("wandb",))
TENSORBOARD: Final = Extra(name="tensorboard", brings="train --tensorboard", modules=("tensorboard",))
EXTRAS: Final = {extra.name: extra for extra in (TUI, GPU, AMD, PARQUET, SQL, STORE, RL, WANDB, TENSORBOARD)}
"""By name."""
