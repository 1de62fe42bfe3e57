"""A page that several programs write: each only its own section."""

from __future__ import annotations

from pathlib import Path

from page_sections import section, with_section, write_section

ROOT = Path(__file__).parents[2]

PAGE = "# Title\n\nWords.\n\n<!-- one -->\n\nfirst\n\n<!-- two -->\n\nsecond\n"


def test_old_section_is_replaced_in_its_place() -> None:
    assert with_section(PAGE, "one", "new\n") == PAGE.replace("first", "new")
    assert with_section(PAGE, "two", "new") == PAGE.replace("second", "new")


def test_new_section_goes_to_the_end() -> None:
    assert with_section(PAGE, "three", "third") == PAGE + "\n" + section("three", "third")


def test_same_section_changes_nothing() -> None:
    assert with_section(PAGE, "one", "first") == PAGE


def test_comments_within_a_section_belong_to_it() -> None:
    page = "<!-- one -->\n\n<!-- a remark: not a name -->\n"
    assert with_section(page, "one", "new") == section("one", "new")


def test_file_is_made(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    write_section(path, "one", "first")
    write_section(path, "two", "second")
    write_section(path, "one", "new")
    assert path.read_text(encoding="utf-8") == "<!-- one -->\n\nnew\n\n<!-- two -->\n\nsecond\n"


def test_page_of_the_documents_has_its_sections() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert text.startswith("<!-- bench-cpu-narrow -->\n")
