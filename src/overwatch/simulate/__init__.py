"""Scripted runs and faults, deterministic by seed: what a trainer would send, without one."""

from overwatch.simulate.delivery import Reported, Teller
from overwatch.simulate.faults import FAULTS, FaultError, parse_fault
from overwatch.simulate.script import Moment, Script
from overwatch.simulate.settings import SECOND, Settings, SettingsError

__all__ = [
    "FAULTS",
    "SECOND",
    "FaultError",
    "Moment",
    "Reported",
    "Script",
    "Settings",
    "SettingsError",
    "Teller",
    "parse_fault",
]  # fmt: skip
