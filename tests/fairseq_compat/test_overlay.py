"""``Overlay``: some names replaced for one user of a module, the module itself unchanged."""

from __future__ import annotations

import math

import pytest

from fairseq_compat.patching import Overlay


def test_replaced_names_are_the_given_ones_and_others_the_modules() -> None:
    seen = Overlay(math, sqrt=abs)
    assert seen.sqrt is abs
    assert seen.floor is math.floor
    assert seen.pi == math.pi


def test_module_itself_is_unchanged() -> None:
    original = math.sqrt
    seen = Overlay(math, sqrt=abs, new_name=1)
    seen.pi = 3
    assert math.sqrt is original
    assert math.pi != 3
    assert not hasattr(math, "new_name")


def test_module_is_looked_at_when_a_name_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Overlay(math)
    monkeypatch.setattr(math, "added_later", 7, raising=False)
    assert seen.added_later == 7


def test_missing_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        Overlay(math).no_such_name  # noqa: B018  # the access is the test


def test_name_and_docstring_are_the_modules() -> None:
    seen = Overlay(math)
    assert seen.__name__ == "math"
    assert seen.__doc__ == math.__doc__
