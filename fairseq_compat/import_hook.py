"""The import hook: how patches are put around the execution of fairseq's modules.

This file is imported at every start of Python in an environment that has the package, so it imports only what is
built into Python. The patches themselves are imported with the first module of fairseq.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing costs more start-up time than the rest of this file together
    from collections.abc import Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from fairseq_compat.patching import Patch

#: The one release that the patches are written for.
FAIRSEQ_VERSION = "0.12.2"

#: Packages whose modules are patched. A plugin of somebody else is not among them.
PACKAGES = {"fairseq", "fairseq_cli"}


class PatchingFinder:
    """First entry of ``sys.meta_path``: finds a module of fairseq as usual and wraps its loader; ignores all others."""

    def __init__(self) -> None:
        self._is_patched_release: bool | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in PACKAGES or not self._finds_patched_release():
            return None
        for finder in tuple(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    is_patched = isinstance(spec.loader, PatchingLoader)  # where a finder has asked this one
                    if spec.loader is not None and not is_patched and (patches := patches_of(name, spec)):
                        spec.loader = PatchingLoader(spec.loader, patches)  # type: ignore[assignment]  # typed by duck
                    return spec
        return None

    def _finds_patched_release(self) -> bool:
        if self._is_patched_release is None:  # asked once: hundreds of modules are looked for
            from fairseq_compat.versions import installed_version

            self._is_patched_release = installed_version("fairseq") == FAIRSEQ_VERSION
        return self._is_patched_release


class PatchingLoader:
    """Executes a module inside the context managers of its patches; everything else is the real loader's."""

    def __init__(self, loader: Loader, patches: Sequence[Patch]) -> None:
        self._loader = loader
        self._patches = patches

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        from contextlib import ExitStack

        # Tools that look at a module afterwards (inspect, pickle, runpy) are to see the loader they know.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        with ExitStack() as around:
            for patch in reversed(self._patches):  # what is entered last ends first
                around.enter_context(patch.around(module))
            self._loader.exec_module(module)


def patches_of(name: str, spec: ModuleSpec) -> list[Patch]:
    """Return the patches of a module, in the order of their application: by its name, and by what it mentions."""
    from importlib import import_module

    registered: list[Patch] = import_module("fairseq_compat.patches").PATCHES  # which import what they patch
    is_source = (spec.origin or "").endswith((".py", ".pyc"))
    source = spec.loader.get_data(spec.origin) if is_source else b""  # type: ignore[union-attr]  # what loaders of such files have
    return [patch for patch in registered if name in patch.modules or (patch.mentioned and patch.mentioned in source)]


def install() -> None:
    """Put the finder in front of ``sys.meta_path``; a second call does nothing."""
    if not any(isinstance(finder, PatchingFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, PatchingFinder())
