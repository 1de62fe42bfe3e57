"""Check which package imports which, and draw it: ``python tools/packages.py [--write]``.

Reads the imports of ``fairseq_depthwise`` and ``fairseq_compat`` with :mod:`ast`; nothing is imported. Prints what
breaks a rule, one line each, and ends with status 1 if anything does. ``--write`` draws ``docs/figures/packages.svg``.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from textwrap import wrap

ROOT = Path(__file__).parents[1]
FIGURE = "docs/figures/packages.svg"
PLUGIN, COMPAT = "fairseq_depthwise", "fairseq_compat"


@dataclass(frozen=True)
class Package:
    """A package in the figure: its row from the top, its columns from the left, and what it is for.

    A package imports packages of its own row and of rows below.
    """

    row: int
    columns: range
    purpose: str


PACKAGES = {
    "commands": Package(0, range(0, 5), "the command line: parse, call, print"),
    "analysis": Package(1, range(0, 3), "what trained models have learned: probe, units, gates, similarity of layers"),
    "tasks": Package(1, range(3, 4), "tasks that grow a model"),
    "reports": Package(1, range(4, 5), "training runs as HTML"),
    "evaluation": Package(2, range(1, 3), "BLEU, significance, sizes, checkpoint summaries"),
    "elastic": Package(2, range(3, 5), "training on processes and machines that come and go"),
    "serving": Package(3, range(0, 1), "text in, text out; export"),
    "growth": Package(3, range(1, 4), "making stacks of layers deeper, in a running training and in a file"),
    "criterions": Package(3, range(4, 5), "translation loss with auxiliary losses"),
    "checkpoints": Package(4, range(0, 4), "reading and averaging checkpoints"),
    "models": Package(5, range(0, 5), "base, and a folder for each paper: depthwise_lstm, sdt, mute; linearized"),
    "modules": Package(6, range(0, 4), "what families share: attention, embedding, decoding caches, linear layers"),
    "optim": Package(6, range(4, 5), "fused Adam, restarts"),
}

#: Every package may import these: single files at the top, and what makes fairseq run.
EVERYWHERE = ("figures", "tables", "text_files", COMPAT)

#: Files whose inputs and outputs are tensors: neither they nor what they import may import fairseq.
TENSOR_FILES = ("cell.py", "layers.py", "layer.py", "noise.py", "order.py", "attention.py", "similarity.py")

#: Python files in a folder.
MOST_FILES = 15


@dataclass(frozen=True)
class Import:
    """An import statement: the module it is in, the module it names, and whether it runs at import time."""

    importer: str
    imported: str
    at_import_time: bool


class Packages:
    """The modules of both packages and their imports.

    Args:
        root: folder that holds the packages.
    """

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        paths = sorted(path for package in (PLUGIN, COMPAT) for path in (root / package).rglob("*.py"))
        self.files = {_module_name(path.relative_to(root)): path for path in paths}
        self.imports = {statement for module in self.files for statement in self._imports_of(module)}

    def _imports_of(self, module: str) -> Iterator[Import]:
        """Yield the imports of a module, those in functions included, those for type checkers left out."""
        pending: list[tuple[ast.AST, bool]] = [(ast.parse(self.files[module].read_text(encoding="utf-8")), True)]
        while pending:
            node, at_import_time = pending.pop()
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                continue
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                at_import_time = False
            for name in self._names(node):
                yield Import(module, name, at_import_time)
            pending += [(child, at_import_time) for child in ast.iter_child_nodes(node)]

    def _names(self, node: ast.AST) -> list[str]:
        """Return the modules that an import statement names; ``from package import module`` names the module."""
        if isinstance(node, ast.Import):
            return [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            members = [f"{node.module}.{alias.name}" for alias in node.names]
            return [member if member in self.files else str(node.module) for member in members]
        return []

    def between_packages(self) -> set[tuple[str, str]]:
        """Return (importer, imported) for all pairs of packages of the figure."""
        pairs = {(package_of(statement.importer), package_of(statement.imported)) for statement in self.imports}
        return {(first, second) for first, second in pairs if first != second and {first, second} <= PACKAGES.keys()}

    def violations(self) -> list[str]:
        """Return what breaks a rule, a line each."""
        return [*self._unknown(), *self._circles(), *self._upward(), *self._fairseq_in_tensor_files(), *self._large()]

    def _unknown(self) -> Iterator[str]:
        for path in sorted((self.root / PLUGIN).glob("*/__init__.py")):
            if path.parent.name not in PACKAGES:
                yield f"{path.parent.name} is missing from PACKAGES in tools/packages.py"

    def _circles(self) -> Iterator[str]:
        """Yield each module that imports itself by way of others, while it is imported."""
        after: dict[str, set[str]] = {module: set() for module in self.files}
        for statement in self.imports:
            if statement.at_import_time and statement.imported in after:
                after[statement.importer].add(statement.imported)
        for module in sorted(after):
            if module in _reachable(module, after):
                yield f"{module} imports itself at import time"

    def _upward(self) -> Iterator[str]:
        rows = {name: package.row for name, package in PACKAGES.items()}
        for statement in sorted(self.imports, key=lambda statement: (statement.importer, statement.imported)):
            importer, imported = package_of(statement.importer), package_of(statement.imported)
            against = f"{statement.importer} imports {statement.imported}"
            if statement.importer.startswith(COMPAT) and statement.imported.startswith(PLUGIN):
                yield f"{against}, though {COMPAT} may know nothing of the plugin"
            if importer == imported or imported not in rows:
                continue
            if importer in EVERYWHERE or (importer in rows and rows[imported] <= rows[importer]):
                yield f"{against}, against the direction of imports"

    def _fairseq_in_tensor_files(self) -> Iterator[str]:
        after: dict[str, set[str]] = {module: set() for module in self.files}
        for statement in self.imports:
            if statement.importer in after:
                after[statement.importer].add(statement.imported)
        for module, path in sorted(self.files.items()):
            if module.startswith(f"{PLUGIN}.models.") and (path.name in TENSOR_FILES or "kernels" in path.parts):
                for name in sorted(_reachable(module, after)):
                    if name.split(".")[0] in ("fairseq", "fairseq_cli"):
                        yield f"{module} imports {name}, itself or through another module; it takes and returns tensors"

    def _large(self) -> Iterator[str]:
        folders = [path.parent.relative_to(self.root).as_posix() for path in self.files.values()]
        for folder in sorted(set(folders)):
            if (number := folders.count(folder)) > MOST_FILES:
                yield f"{folder} has {number} Python files; at most {MOST_FILES}"


def package_of(module: str) -> str:
    """Return the package that a module belongs to: ``models``, ``figures``, ``fairseq_compat``, ..."""
    top, _, rest = module.partition(".")
    name = rest.split(".")[0] if top == PLUGIN and rest else top
    return "commands" if name in ("cli", "__main__") else name


def _reachable(start: str, after: dict[str, set[str]]) -> set[str]:
    """Return what can be reached from a node in one step or more."""
    seen: set[str] = set()
    pending = list(after.get(start, ()))
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            pending += after.get(node, ())
    return seen


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def arrows(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the imports that do not follow from others: without a -> c where a -> b -> c."""
    after: dict[str, set[str]] = {}
    for importer, imported in pairs:
        after.setdefault(importer, set()).add(imported)
    return {
        (importer, imported)
        for importer, several in after.items()
        for imported in several
        if not any(imported in _reachable(other, after) for other in several - {imported})
    }


# The figure. Lengths are in units of the viewBox.
WIDTH, MARGIN, GAP, BOX, STEP = 1000, 20, 14, 62, 94
COLUMN = (WIDTH - 2 * MARGIN + GAP) / 5

STYLE = """
    text { font: 14px Helvetica, Arial, "DejaVu Sans", sans-serif; text-anchor: middle; fill: #57606a; }
    .name { font-size: 17px; font-weight: bold; fill: #1f2328; }
    .page { fill: #ffffff; }
    rect { stroke-width: 1.3; }
    .box { fill: #dcebff; stroke: #5b8fd0; }
    .paper { fill: #d9f2dd; stroke: #5aa469; }
    .shared { fill: #f1f2f4; stroke: #a5acb5; }
    .arrow { fill: none; stroke: #57606a; stroke-width: 1.6; marker-end: url(#head); }
    .head { fill: #57606a; }
    @media (prefers-color-scheme: dark) {
      text { fill: #9da7b3; }
      .name { fill: #e6edf3; }
      .page { fill: #0d1117; }
      .box { fill: #12305a; stroke: #4d86cf; }
      .paper { fill: #143d22; stroke: #4c9a5f; }
      .shared { fill: #1c2128; stroke: #545d68; }
      .arrow { stroke: #9da7b3; }
      .head { fill: #9da7b3; }
    }"""


def figure(pairs: set[tuple[str, str]]) -> str:
    """Return the packages and their imports as SVG; an import that follows from others has no arrow."""
    bottom = MARGIN + 7 * STEP
    height = bottom + 146
    head = (
        '<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" orient="auto" '
        'markerUnits="userSpaceOnUse"><path class="head" d="M0 0 L10 5 L0 10 Z"/></marker>'
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" aria-label="Packages and what they import">',
        f"  <style>{STYLE}\n  </style>",
        f"  <defs>{head}</defs>",
        f'  <rect class="page" width="{WIDTH}" height="{height}" rx="10"/>',
        *(_box(name, package) for name, package in PACKAGES.items()),
        *(_arrow(first, second) for first, second in sorted(arrows(pairs))),
        _bar(bottom, "figures.py, tables.py, text_files.py", "every package may import these"),
        _bar(bottom + 52, COMPAT, "makes fairseq 0.12.2 run on current versions; imports nothing of the plugin"),
        f'  <path class="arrow" d="M330 {bottom + 122} h36"/>',
        f'  <text x="378" y="{bottom + 127}" style="text-anchor: start">imports, and what that package imports</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _box(name: str, package: Package) -> str:
    left, top = MARGIN + package.columns.start * COLUMN, MARGIN + package.row * STEP
    width = len(package.columns) * COLUMN - GAP
    lines = wrap(package.purpose, int(width / 7))
    middle, first = left + width / 2, top + (28 if len(lines) == 1 else 21)
    texts = [f'<text class="name" x="{middle:g}" y="{first:g}">{name}</text>']
    texts += [f'<text x="{middle:g}" y="{first + 19 + 16 * i:g}">{escape(line)}</text>' for i, line in enumerate(lines)]
    kind = "paper" if name == "models" else "box"
    box = f'<rect class="{kind}" x="{left:g}" y="{top:g}" width="{width:g}" height="{BOX}" rx="6"/>'
    return f"  {box}{''.join(texts)}"


def _bar(top: float, name: str, purpose: str) -> str:
    width = WIDTH - 2 * MARGIN
    bar = f'<rect class="shared" x="{MARGIN}" y="{top:g}" width="{width}" height="40" rx="6"/>'
    title = f'<tspan class="name">{name}</tspan>'
    return f'  {bar}<text x="{WIDTH / 2:g}" y="{top + 26:g}">{title}<tspan dx="14">{escape(purpose)}</tspan></text>'


def _arrow(importer: str, imported: str) -> str:
    """Draw a vertical arrow in a column that both boxes have and no box between them, or else a slanted one."""
    above, below = PACKAGES[importer], PACKAGES[imported]
    start, end = MARGIN + above.row * STEP + BOX, MARGIN + below.row * STEP
    between = range(above.row + 1, below.row)
    taken = {column for package in PACKAGES.values() if package.row in between for column in package.columns}
    free = [column for column in above.columns if column in below.columns and column not in taken]
    if free:
        column = free[(len(free) - 1) // 2]
        first = last = MARGIN + (column + 0.5) * COLUMN - GAP / 2
    else:
        first, last = (MARGIN + (sum(p.columns) / len(p.columns) + 0.5) * COLUMN for p in (above, below))
    path = f'<path class="arrow" d="M{first:g} {start:g} L{last:g} {end:g}"/>'
    return f"  <g><title>{importer} imports {imported}</title>{path}</g>"


def main() -> int:
    """Check the packages, and draw them if asked to."""
    parser = argparse.ArgumentParser(description="Check which package imports which, and draw it.")
    parser.add_argument("--write", action="store_true", help=f"draw {FIGURE} anew")
    options = parser.parse_args()
    packages = Packages()
    if options.write:
        (ROOT / FIGURE).write_text(figure(packages.between_packages()), encoding="utf-8")
    problems = packages.violations()
    print("\n".join(problems) or "every import is in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
