"""``Overlay``: some names replaced for one user of a module, the module itself unchanged."""

from __future__ import annotations

import math

import pytest

from fairseq_compat.patching import Overlay


def test_replaced_names_are_the_given_ones_and_the_module_is_unchanged() -> None:
    original = math.sqrt
    seen = Overlay(math, sqrt=abs, new_name=1)
    assert seen.sqrt is abs
    assert seen.floor is math.floor
    seen.pi = 3
    assert math.sqrt is original
    assert math.pi != 3
    assert not hasattr(math, "new_name")
    assert (seen.__name__, seen.__doc__) == ("math", math.__doc__)


def test_module_is_looked_at_when_a_name_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Overlay(math)
    monkeypatch.setattr(math, "added_later", 7, raising=False)
    assert seen.added_later == 7
    with pytest.raises(AttributeError, match="no_such_name"):
        seen.no_such_name  # noqa: B018  # the access is the test
