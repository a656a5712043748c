"""What libraries logged when they were run: each name is a row's, is left out with a reason, or is custom."""

import fnmatch
import json
import re
from pathlib import Path
from typing import Any

import pytest

from overwatch.adapters.numbers import numbers, scalar
from overwatch.catalog import CUSTOM_PREFIX, LIBRARIES, Library, recognise

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))
LIKE_A_ROW = re.compile(
    r"entropy|kl\b|loss|reward|return|clip|\blr\b|learning_rate|grad|value", re.IGNORECASE
)
"""A name with one of these is a row's, or it has a reason."""


def _recorded(path: Path) -> tuple[dict[str, Any], Library, set[str]]:
    """A fixture, whose it is, and the names of its numbers."""
    found = json.loads(path.read_text())
    named = {
        name for logged in found["logged"] for name, value in logged.items() if scalar(value) is not None
    }
    return found, Library(found["library"]), named


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_every_recorded_name_is_accounted_for(path: Path) -> None:
    """A new version's names come with a decision each."""
    found, library, named = _recorded(path)
    left = next(names.left for names in LIBRARIES if names.library is library)

    unknown = {name for name in named if recognise(name, library) is None}
    custom = {name for name in unknown if not any(fnmatch.fnmatchcase(name, one) for one in left)}
    assert custom == set(found["custom"])
    assert not {name for name in custom if LIKE_A_ROW.search(name)}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_no_recorded_number_is_lost(path: Path) -> None:
    """Each call has as many numbers as it had, under the names of rows or as custom ones."""
    found, library, _ = _recorded(path)
    for logged in found["logged"]:
        sent = numbers(logged, library)
        assert len(sent) == sum(scalar(value) is not None for value in logged.values())
        assert {name for name in sent if name.startswith(CUSTOM_PREFIX)} <= {
            f"{CUSTOM_PREFIX}{name}" for name in logged
        }
