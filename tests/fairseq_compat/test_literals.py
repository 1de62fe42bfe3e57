"""Option values are read as literals in all of fairseq: hostile ones do not run, those in use mean what they did."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_values import HOSTILE, hostile

from fairseq_compat import UserError, import_hook
from fairseq_compat.literals import evaluate


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Path]:
    """A file that nothing makes, unless a hostile value is evaluated."""
    path = tmp_path / "it-ran"
    yield path
    assert not path.exists()


# The evaluator.


@pytest.mark.parametrize(
    "text",
    [
        "(0.9, 0.98)", "0.1,0.2", "[3,7,15]", "[(512, 3)] * 15", "[(512, 10, 5)] + [(512, 8, 4)] * 4 + [(512,1,1)]*3",
        "{'a': 1, 'b': {'c': [None, True]}}", "-1e-3", "+2", "  7", "\t'text'", "{1, 2}", "()", "[]", "{}", "''",
        "((64, 3, 2, 2, False),) * 2", "3 * [1]", "1 + 2 * 3 - 4", "'ab' 'cd'", "b'x'", "2+3j", "[0] * -1", "(1,\n2)\n",
        "[True]*15", "0.5 * 1000000", "False", "None", "1e999",
    ],
)  # fmt: skip
def test_literals_are_what_python_makes_of_them(text: str) -> None:
    expected = eval(text.strip())
    found = evaluate(text)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("kind", HOSTILE)
def test_code_is_refused(kind: str, witness: Path) -> None:
    with pytest.raises(UserError, match=r"an option has the value .* which is not a literal: ") as raised:
        evaluate(hostile(kind, witness))
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    [
        "x", "x.y", "...", "not 1", "~1", "1 / 2", "2 ** 3", "7 % 2", "1 < 2", "{**{}}", "[*[]]", "f''", "[1][0]",
        "yield", "await x", "", "(", "1 +", "1\n2", "\x00", "'\udcff' * x", "'a' * 'b'", "[1] - [1]", "{[]: 1}", "-'a'",
        "1e400 * x", "lambda: 1", "[] + ()",
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="is not a literal"):
        evaluate(text)


LARGE = {
    "power": "[0] * 10**10", "tower": "9**9**9", "list": "[0] * 9999999999", "text": "'a' * 9999999999",
    "nested": "[[[0] * 999] * 999] * 999", "twice": "(0,) * 10 * 99999", "number first": "9999999999 * [0] * 9",
    "parentheses": "(" * 50_000, "minus": "-" * 50_000 + "1", "brackets": "[" * 90_000, "digits": "1" * 99_000,
    "sum": "1+" * 49_000 + "1", "product": "9" * 4000 + "*9" * 10_000, "braces": "{" * 50_000 + "}" * 50_000,
    "long": "'" + "a" * 200_000 + "'", "many": "1," * 60_000, "long and twice": "'a' * 99999 * 9",
    "lists": "[0]*33000," * 9000,
}  # fmt: skip


@pytest.mark.parametrize("kind", LARGE)
def test_large_values_cost_little(kind: str) -> None:
    start = time.process_time()  # of this process: others may be busy
    with pytest.raises(UserError) as raised:
        evaluate(LARGE[kind])
    assert time.process_time() - start < 2
    assert len(str(raised.value)) < 500


# All of fairseq.


EVALUATES = re.compile(rb"(?<![.\w])(eval|exec|compile|__import__)\s*\(|literal_eval|torch\.load")


def _modules() -> Iterator[tuple[str, Path]]:
    for package in ("fairseq", "fairseq_cli"):
        (folder,) = importlib.import_module(package).__path__
        for path in sorted(Path(folder).rglob("*.py")):
            yield ".".join([package, *path.relative_to(folder).with_suffix("").parts]), path


def test_every_module_of_fairseq_that_evaluates_is_patched() -> None:
    patched: set[tuple[str, str]] = set()
    for name, path in _modules():
        source = path.read_bytes()
        if not EVALUATES.search(source):
            continue
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        patches = {patch.change.__name__ for patch in import_hook.find_patches(name, spec)}
        for node in ast.walk(ast.parse(source)):
            called = node.func if isinstance(node, ast.Call) else None
            assert not (isinstance(called, ast.Name) and called.id in ("exec", "compile", "__import__")), name
            if isinstance(called, ast.Name) and called.id in ("eval", "literal_eval"):
                assert "evaluate_literals_only" in patches, name
                patched.add((name, "eval"))
            if isinstance(called, ast.Attribute) and ast.unparse(called) == "torch.load":
                assert "load_without_running_code" in patches, name
                patched.add((name, "load"))
    assert len(patched) > 30


# fairseq's own examples, as a folder of the user's.


def test_examples_of_fairseq_read_literals_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairseq import utils

    monkeypatch.setattr(import_hook, "PACKAGES", set(import_hook.PACKAGES))
    own = Path(utils.__file__).parent / "examples" / "data2vec"
    if not own.is_dir():
        pytest.skip("this fairseq has no examples")
    utils.import_user_module(Namespace(user_dir="examples/data2vec"))
    module: Any = importlib.import_module("data2vec.models.data2vec_audio")
    assert module.eval is evaluate
    foreign = tmp_path / "plugin_of_mine"
    foreign.mkdir()
    (foreign / "__init__.py").write_text("value = eval('1 if True else 2')\n", encoding="utf-8")
    utils.import_user_module(Namespace(user_dir=str(foreign)))
    plugin: Any = sys.modules["plugin_of_mine"]
    assert plugin.value == 1
    assert not hasattr(plugin, "eval")
