"""Where things are: the direction of imports, the picture of the packages, and paths that pages name."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("packages", ROOT / "tools/packages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


packages = load_tool()


def test_every_import_is_in_order() -> None:
    assert packages.Packages().violations() == []


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"models/a.py": "from fairseq_depthwise.commands import grow"}, "models.a imports .*commands, against"),
        ({"text_files.py": "from fairseq_depthwise.models import base"}, "text_files imports .*models, against"),
        (
            {"optim/a.py": "import fairseq_depthwise.optim.b", "optim/b.py": "from fairseq_depthwise.optim import a"},
            "optim.a imports itself",
        ),
        (
            {"models/mute/noise.py": "import fairseq_depthwise.modules.a", "modules/a.py": "import fairseq.utils"},
            "noise imports fairseq.utils",
        ),
        ({"../fairseq_compat/a.py": "def f():\n    import fairseq_depthwise.cli"}, "fairseq_compat.a imports"),
        ({f"growth/part{number}.py": "" for number in range(16)}, "growth has 16 Python files; at most 15"),
        ({"surprise/__init__.py": ""}, "surprise is missing from PACKAGES"),
    ],
)
def test_what_breaks_a_rule_is_reported(files: dict[str, str], problem: str, tmp_path: Path) -> None:
    for name, text in files.items():
        path = tmp_path / "fairseq_depthwise" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert re.search(problem, "\n".join(packages.Packages(tmp_path).violations()))


def test_imports_in_functions_and_for_type_checkers_make_no_circle(tmp_path: Path) -> None:
    folder = tmp_path / "fairseq_depthwise/optim"
    folder.mkdir(parents=True)
    (folder / "a.py").write_text("from fairseq_depthwise.optim import b, c", encoding="utf-8")
    (folder / "b.py").write_text("def f():\n    from fairseq_depthwise.optim import a", encoding="utf-8")
    (folder / "c.py").write_text("if TYPE_CHECKING:\n    from fairseq_depthwise.optim import a", encoding="utf-8")
    assert packages.Packages(tmp_path).violations() == []


def test_the_figure_shows_the_imports_of_today() -> None:
    """``python tools/packages.py --write`` draws it anew."""
    pairs = packages.Packages().between_packages()
    shown = re.findall(r"<title>(\w+) imports (\w+)</title>", (ROOT / packages.FIGURE).read_text(encoding="utf-8"))
    assert set(shown) == packages.arrows(pairs)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r'(?:\]\(|src="|srcset=")([^)"#:]+)(?:#[^)"]*)?[)"]', page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_overview_names_files_that_are_there() -> None:
    text = (ROOT / "docs/overview.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|sh|md|svg)|(?:[\w.-]+/)+)`", text))
    assert names
    bare = {path.name for package in ("fairseq_depthwise", "recipes") for path in (ROOT / package).rglob("*")}
    folders = (ROOT, ROOT / "fairseq_depthwise")
    missing = {name for name in names if not any((folder / name).exists() for folder in folders)}
    assert sorted(name for name in missing if name.rstrip("/") not in bare) == []
