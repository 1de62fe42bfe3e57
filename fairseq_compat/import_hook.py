"""The import hook: which modules are adjusted, and how an adjustment is put around a module's execution.

This file is imported at every start of Python in an environment that has the package, so it imports only what is
built into Python. The patches themselves are imported when a module they are for is imported.
"""

from __future__ import annotations

import sys
from _thread import get_ident

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing costs more start-up time than the rest of this file together
    from collections.abc import Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

#: The one release that the patches are written for.
FAIRSEQ_VERSION = "0.12.2"

#: Module -> the patches (files of ``fairseq_compat.patches``) that are put around its execution.
PATCHES: dict[str, tuple[str, ...]] = {
    "hydra.conf": ("options.dataclass_defaults",),
    "fairseq": ("options.known_warnings",),
    "fairseq.dataclass.configs": ("options.dataclass_defaults",),
    "fairseq.models.transformer.transformer_config": ("options.dataclass_defaults",),
    "fairseq.checkpoint_utils": (
        "checkpoints.safe_loading",
        "checkpoints.whole_checkpoints",
        "checkpoints.missing_checkpoints",
        "checkpoints.models_within",
        "checkpoints.finite_parameters",
        "checkpoints.belonging",
    ),
    "fairseq.hub_utils": ("checkpoints.models_within",),
    "fairseq.file_utils": ("checkpoints.checked_archives",),
    "fairseq.models.distributed_fairseq_model": ("training.processes_on_cpus", "training.unused_encoder_weights"),
    "fairseq.tasks": ("data.recorded_languages",),
    "fairseq.tasks.fairseq_task": ("training.nothing_left",),
    "fairseq.tasks.translation": ("data.languages_of_the_data",),
    "fairseq.trainer": (
        "checkpoints.recorded_versions",
        "checkpoints.belonging",
        "training.patience",
        "training.empty_last_batches",
        "data.training_data_as_validation",
    ),
    "fairseq.optim.fp16_optimizer": ("checkpoints.master_weights",),
    "fairseq.nan_detector": ("training.reported_nan",),
    "fairseq.utils": ("options.examples_as_user_dir",),
    "fairseq.distributed.utils": ("training.broadcast_of_own_objects", "training.freed_memory"),
    "fairseq.modules.transformer_layer": ("training.encoder_fast_path",),
    "fairseq.models.transformer.transformer_encoder": ("training.encoder_fast_path",),
    "fairseq.options": ("training.bf16_without_xla", "options.option_ranges"),
    "fairseq.logging.progress_bar": ("options.log_file_once",),
    "fairseq.data.data_utils": ("options.numpy_aliases",),
    "fairseq.data.dictionary": ("data.damaged_dictionaries",),
    "fairseq.data.indexed_dataset": ("training.open_files", "data.damaged_data"),
    "fairseq.data.iterators": ("data.position_for_any_processes",),
    "fairseq.data.fasta_dataset": ("data.fasta_without_shell",),
    "fairseq.data.language_pair_dataset": ("options.numpy_aliases", "data.damaged_data"),
    "fairseq.data.multilingual.multilingual_data_manager": (
        "data.data_of_both_directions",
        "checkpoints.equal_dictionaries",
        "data.directions_without_validation",
    ),
    "fairseq.data.token_block_dataset": ("options.numpy_aliases",),
    "fairseq.data.encoders.subword_nmt_bpe": ("data.subword_codes",),
    "fairseq.modules.dynamic_crf_layer": ("options.numpy_aliases",),
    "fairseq_cli.score": (
        "data.sacrebleu_files",
        "data.sentence_bleu",
        "options.option_ranges",
        "options.readable_errors",
    ),
    **{f"fairseq_cli.{command}": ("options.readable_errors",) for command in ("eval_lm", "generate", "hydra_train")},
    "fairseq_cli.preprocess": ("options.option_ranges", "options.readable_errors"),
    "fairseq_cli.validate": ("options.readable_errors", "data.task_of_the_checkpoint"),
    "fairseq_cli.interactive": (
        "data.interactive_lines",
        "checkpoints.belonging",
        "options.readable_errors",
    ),
    "fairseq_cli.train": (
        "checkpoints.finished_runs",
        "training.fp16_without_gpu",
        "checkpoints.asynchronous_writes",
        "options.option_ranges",
        "options.assertions_left_out",
        "training.one_training_per_folder",
        "options.readable_errors",
    ),
}

#: Packages whose modules get patches for what they mention, too. A plugin of somebody else is not among them.
PACKAGES = {"fairseq", "fairseq_cli"}

#: Words in the source of a module of these packages -> the patch that it gets for them.
MENTIONED: dict[bytes, str] = {
    b"eval": "options.literal_options",  # literal_eval, too
    b"torch.load": "checkpoints.weights_only",
}

#: (module, patch) pairs in the order in which they were applied in this process.
applied: list[tuple[str, str]] = []


def shorten_interrupts() -> None:
    """Let Ctrl-C be one word in a command that is still being imported, before ``commands/run.py`` has begun."""
    program = (sys.argv[0] if getattr(sys, "argv", None) else "").rpartition("/")[2]
    if not program.startswith("fairseq-"):
        return
    original = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, *rest: Any) -> None:
        if issubclass(kind, KeyboardInterrupt):
            print("interrupted", file=sys.stderr)
        else:
            original(kind, error, *rest)

    sys.excepthook = excepthook


class PatchingFinder:
    """First entry of ``sys.meta_path``: finds a module of fairseq as usual and wraps its loader; ignores all others."""

    def __init__(self) -> None:
        self._is_patched_release: bool | None = None
        #: (thread, module) that is looked for now: another finder may ask all finders, this one too, in its turn.
        self._searches: set[tuple[int, str]] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        in_package = name.partition(".")[0] in PACKAGES
        if name not in PATCHES and not in_package:
            return None
        if in_package and not self._finds_patched_release():
            return None
        search = (get_ident(), name)
        if search in self._searches:
            return None
        self._searches.add(search)
        try:
            for finder in tuple(sys.meta_path):
                if finder is not self and hasattr(finder, "find_spec"):
                    spec = finder.find_spec(name, path, target)
                    if spec is not None:
                        wrappable = spec.loader is not None and not isinstance(spec.loader, PatchingLoader)
                        if wrappable and (patches := patches_of(name, spec)):
                            spec.loader = PatchingLoader(spec.loader, patches)  # type: ignore[assignment, arg-type]  # typed by duck
                        return spec
            return None
        finally:
            self._searches.discard(search)

    def _finds_patched_release(self) -> bool:
        if self._is_patched_release is None:  # asked once: hundreds of modules are looked for
            shorten_interrupts()
            from fairseq_compat.versions import installed_version

            self._is_patched_release = installed_version("fairseq") == FAIRSEQ_VERSION
        return self._is_patched_release


class PatchingLoader:
    """Executes a module inside the context managers of its patches; everything else is the real loader's."""

    def __init__(self, loader: Loader, patches: Sequence[str]) -> None:
        self._loader = loader
        self._patches = patches

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
            for patch in self._patches:
                adjust = import_module(f"fairseq_compat.patches.{patch}").adjust
                around.enter_context(contextmanager(adjust)(module))
            self._loader.exec_module(module)
        applied.extend((name, patch) for patch in self._patches)


def patches_of(name: str, spec: ModuleSpec) -> tuple[str, ...]:
    """Return the patches of a module: those listed for it, which come last, and those for what its source mentions.

    Of several patches the first is the outermost, so it finishes last.
    """
    listed = PATCHES.get(name, ())
    if name.partition(".")[0] not in PACKAGES or not (spec.origin or "").endswith((".py", ".pyc")):
        return listed
    source = spec.loader.get_data(spec.origin)  # type: ignore[union-attr]  # what loaders of such files have
    return (*listed, *(patch for mentioned, patch in MENTIONED.items() if mentioned in source))


def install() -> None:
    """Put the finder in front of ``sys.meta_path``; a second call does nothing."""
    if not any(isinstance(finder, PatchingFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, PatchingFinder())
