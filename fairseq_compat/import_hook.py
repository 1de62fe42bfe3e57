"""The import hook, which applies patches when fairseq's modules are executed.

This file and ``errors.py`` are imported at every start of Python in an environment with the package, so they import
only modules that Python has loaded by then.
The patches themselves are imported with the first module of fairseq.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing costs more start-up time than the rest of this file together
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from fairseq_compat.patching import Patch

#: Packages whose modules are patched; other people's plugins are not.
PACKAGES = {"fairseq", "fairseq_cli"}


class PatchingFinder:
    """First entry of ``sys.meta_path``: finds a module of fairseq as usual and patches it; ignores all others."""

    _is_patched_release: bool | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in PACKAGES or not self._finds_patched_release():
            return None
        for finder in tuple(sys.meta_path):
            # Finders for Python 3.11 and older may only have find_module.
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    # The finder of another tool may itself ask all of sys.meta_path; then this one was called, and
                    # has patched the module already.
                    is_new = spec.loader is not None and "exec_module" not in vars(spec.loader)
                    if is_new and (patches := find_patches(name, spec)):
                        wrap_loader(spec, patches)
                    return spec
        return None

    def _finds_patched_release(self) -> bool:
        if self._is_patched_release is None:  # computed once: hundreds of modules are imported
            from fairseq_compat.process import sleep_while_waiting
            from fairseq_compat.versions import FAIRSEQ_VERSION, installed_version

            sleep_while_waiting()  # fairseq imports PyTorch

            self._is_patched_release = installed_version("fairseq") == FAIRSEQ_VERSION
        return self._is_patched_release


def wrap_loader(spec: ModuleSpec, patches: Sequence[Patch]) -> None:
    """Replace the loader of a module by a copy that executes the module inside the contexts of its patches."""
    from contextlib import ExitStack
    from copy import copy

    loader: Any = copy(spec.loader)  # a zip archive has one loader for all its modules
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module  # tools that execute a module again, such as runpy, get the original method
        with ExitStack() as around:
            for patch in reversed(patches):  # the context entered last ends first
                around.enter_context(patch.applied_to(module))
            execute(module)

    loader.exec_module = exec_module
    spec.loader = loader


def find_patches(name: str, spec: ModuleSpec) -> list[Patch]:
    """Return the patches of a module, by its name and by strings in its source, in the order of their application."""
    from importlib import import_module

    registered: list[Patch] = import_module(
        "fairseq_compat.patches"
    ).PATCHES  # imported here: the patches import fairseq
    is_source = (spec.origin or "").endswith((".py", ".pyc"))
    source = spec.loader.get_data(spec.origin) if is_source else b""  # type: ignore[union-attr]  # loaders of such files have it
    return [
        patch
        for patch in registered
        if name in patch.modules or (patch.mentioned and patch.mentioned.encode() in source)
    ]


def install() -> None:
    """Put the finder in front of ``sys.meta_path``; a second call does nothing."""
    if not any(isinstance(finder, PatchingFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, PatchingFinder())
