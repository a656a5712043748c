"""Scripted runs and faults, deterministic by seed: what a trainer would say, without one."""

from overwatch.simulate.faults import FAULTS, FaultError, parse_fault
from overwatch.simulate.script import Moment, Script
from overwatch.simulate.settings import SECOND, Settings, SettingsError
from overwatch.simulate.telling import Teller, Told

__all__ = [
    "FAULTS", "SECOND", "FaultError", "Moment", "Script", "Settings", "SettingsError", "Teller", "Told",
    "parse_fault",
]  # fmt: skip
