"""Pages: every link, and every file or folder of the project that is named, is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [page for folder in ("", "docs/", "examples/**/", "recipes/**/") for page in sorted(ROOT.glob(f"{folder}*.md"))]
TOPS = ("benchmarks", "docs", "examples", "fairseq_compat", "fairseq_depthwise", "recipes", "tests", "tools")
FILES = {str(path) for pattern in ("*", *(f"{top}/**/*" for top in TOPS)) for path in ROOT.glob(pattern)}
#: Of a training's folder, of the history, and of the papers' authors' programs.
ELSEWHERE = {
    "commands.sh", "tensorboard/", "examples/grammar/make_corpus.py", "hplstm/hfn.py", "modules/hplstm/hfn.py",
    "modules/base.py", "modules/rnncells.py", "cnfg/", "utils/init/base.py", "encoders/transformer_boost.py",
    "onmt/decoders/transformer_boost.py", "modules/multi_headed_attn.py", "modules/position_ffn.py", "utils.py",
    "models/sdt_transformer.py", "trainer.py", "modules/layer_history.py", "modules/relative_multihead_attention.py",
}  # fmt: skip


def anchors(page: Path) -> set[str]:
    """Return the names of a page's headings in links, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = re.findall(r'(?:\]\(|src="|srcset=")([^)"#:]*)(?:#([^)":]*))?[)"]', text)
    assert [link for link, _ in links if not (page.parent / link).exists()] == []
    pages = [(page.parent / link if link else page, anchor) for link, anchor in links if anchor]
    assert [anchor for target, anchor in pages if anchor not in anchors(target)] == []
    named = set(re.findall(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|sh|md|svg)|(?:[\w-]+/)+)`", text)) - ELSEWHERE
    if page.name == "CHANGELOG.md":  # names what went, too
        return
    assert [path for path in named if not any(file.endswith(f"/{path.rstrip('/')}") for file in FILES)] == []


@pytest.mark.parametrize("figure", sorted((ROOT / "docs/figures").glob("*.svg")), ids=lambda figure: figure.stem)
def test_figures_serve_light_and_dark_pages(figure: Path) -> None:
    assert "prefers-color-scheme: dark" in figure.read_text(encoding="utf-8")
