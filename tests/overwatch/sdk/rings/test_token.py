"""The token of a ring is never lost: what `writer` relies on holds in this interpreter."""

import dis
from collections.abc import Callable

import pytest

from overwatch.sdk.rings.producer import RingProducer
from overwatch.sdk.rings.ringset import RingSet

LOOKS_AT_SIGNALS = ("CALL", "PRECALL", "RESUME", "JUMP_BACKWARD", "SEND", "YIELD")
"""How instructions begin behind which a signal handler may run."""


@pytest.mark.parametrize(
    "method", [RingProducer.put, RingProducer.offer, RingProducer.flush, RingSet.add_form]
)
def test_no_signal_handler_runs_between_taking_the_token_and_guarding_it(
    method: Callable[..., object],
) -> None:
    """The first instruction that looks for signals behind `del token[0]` is within the `try` behind it."""
    code = dis.Bytecode(method)
    instructions = list(code)
    (taken,) = [place for place, one in enumerate(instructions) if one.opname == "DELETE_SUBSCR"]
    looks = next(one for one in instructions[taken + 1 :] if one.opname.startswith(LOOKS_AT_SIGNALS))
    guards = [entry for entry in code.exception_entries if entry.start <= looks.offset < entry.end]  # type: ignore[attr-defined]
    assert any(entry.start > instructions[taken].offset for entry in guards)
