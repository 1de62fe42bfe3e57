"""The import hook: which modules are adjusted, and how an adjustment is put around a module's execution.

This file is imported at every start of Python in an environment that has the package, so it imports only ``sys``.
The patches themselves are imported when a module they are for is imported.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing costs more start-up time than the rest of this file together
    from collections.abc import Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType

#: The one release that the patches are written for.
FAIRSEQ_VERSION = "0.12.2"

#: Module -> the patches (files of ``fairseq_compat.patches``) that are put around its execution.
PATCHES: dict[str, tuple[str, ...]] = {
    "hydra.conf": ("dataclass_defaults",),
    "fairseq": ("known_warnings",),
    "fairseq.dataclass.configs": ("dataclass_defaults",),
    "fairseq.models.transformer.transformer_config": ("dataclass_defaults",),
    "fairseq.checkpoint_utils": ("safe_loading", "whole_checkpoints", "missing_checkpoints"),
    "fairseq.models.distributed_fairseq_model": ("processes_on_cpus", "unused_encoder_weights"),
    "fairseq.tasks": ("recorded_languages",),
    "fairseq.tasks.translation": ("languages_of_the_data",),
    "fairseq.trainer": ("recorded_versions", "training_data_as_validation"),
    "fairseq.distributed.utils": ("broadcast_of_own_objects",),
    "fairseq.modules.transformer_layer": ("encoder_fast_path",),
    "fairseq.models.transformer.transformer_encoder": ("encoder_fast_path",),
    "fairseq.options": ("bf16_without_xla",),
    "fairseq.logging.progress_bar": ("log_file_once",),
    "fairseq.data.data_utils": ("numpy_aliases",),
    "fairseq.data.indexed_dataset": ("open_files",),
    "fairseq.data.language_pair_dataset": ("numpy_aliases",),
    "fairseq.data.multilingual.multilingual_data_manager": (
        "data_of_both_directions",
        "equal_dictionaries",
        "directions_without_validation",
    ),
    "fairseq.data.token_block_dataset": ("numpy_aliases",),
    "fairseq.data.encoders.subword_nmt_bpe": ("subword_codes",),
    "fairseq.modules.dynamic_crf_layer": ("numpy_aliases",),
    "fairseq_cli.score": ("sacrebleu_files", "sentence_bleu", "readable_errors"),
    **{
        f"fairseq_cli.{command}": ("readable_errors",)
        for command in ("eval_lm", "generate", "hydra_train", "preprocess")
    },
    "fairseq_cli.validate": ("readable_errors", "task_of_the_checkpoint"),
    "fairseq_cli.interactive": ("interactive_lines", "readable_errors"),
    "fairseq_cli.train": (
        "finished_runs",
        "fp16_without_gpu",
        "asynchronous_writes",
        "assertions_left_out",
        "one_training_per_folder",
        "readable_errors",
    ),
}

#: (module, patch) pairs in the order in which they were applied in this process.
applied: list[tuple[str, str]] = []


class PatchingFinder:
    """First entry of ``sys.meta_path``: finds a listed module as usual and wraps its loader; ignores all others."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in PATCHES or not _is_patched_release(name):
            return None
        for finder in sys.meta_path:
            if finder is not self:
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    if spec.loader is not None:
                        spec.loader = PatchingLoader(spec.loader)  # type: ignore[assignment]  # typed by duck
                    return spec
        return None


class PatchingLoader:
    """Executes a module inside the context managers of its patches; everything else is the real loader's."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        from contextlib import ExitStack, contextmanager
        from importlib import import_module

        name = module.__name__
        # Tools that look at a module afterwards (inspect, pickle, runpy) are to see the loader they know.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        with ExitStack() as around:
            for patch in PATCHES[name]:
                adjust = import_module(f"fairseq_compat.patches.{patch}").adjust
                around.enter_context(contextmanager(adjust)(module))
            self._loader.exec_module(module)
        applied.extend((name, patch) for patch in PATCHES[name])


def _is_patched_release(name: str) -> bool:
    if not name.startswith("fairseq"):
        return True
    from fairseq_compat.versions import installed_version

    return installed_version("fairseq") == FAIRSEQ_VERSION


def install() -> None:
    """Put the finder in front of ``sys.meta_path``; a second call does nothing."""
    if not any(isinstance(finder, PatchingFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, PatchingFinder())
