"""Deep and wide Transformers for translation: a fairseq plugin (``--user-dir fairseq_depthwise``).

With fairseq, or after :func:`register_with_fairseq`, fairseq's command line knows these names:

- architectures: ``depthwise_lstm_transformer``, ``mute_transformer``, ``sdt_transformer`` and their presets, and
  ``linearized_transformer``;
- criterions: ``label_smoothed_cross_entropy_with_auxiliary``, ``linearization_probe``;
- learning rate schedule ``inverse_sqrt_restart``, optimizer ``fused_adam``, tokenizer ``moses_normalized``;
- tasks: ``translation_layer_growth``, ``translation_multi_simple_epoch_layer_growth``.

Programs import from here: the models ``DepthwiseLSTMTransformer``, ``MuteTransformer`` and ``SDTTransformer``;
``LoadedTranslator`` with ``TranslatorOptions``, ``TextOptions`` and ``BeamOptions``; ``Checkpoint``. This registers,
too. Cell, layers, connections and attention need no fairseq: until a program imports fairseq, importing this package
registers nothing.
"""

import importlib
import sys
from typing import Any

import fairseq_compat
from fairseq_compat.patching import patch

__version__ = "0.1.0"

if __name__ != "fairseq_depthwise":
    raise fairseq_compat.UserError(
        f"--user-dir leads to a folder that is imported as {__name__!r}; its modules know each other as "
        "fairseq_depthwise, so give a folder of that name"
    )

#: The class of each family's models -> its folder in ``models/``.
FAMILIES = {
    "DepthwiseLSTMTransformer": "depthwise_lstm",
    "LinearizedTransformer": "linearized",
    "MuteTransformer": "mute",
    "SDTTransformer": "sdt",
}

#: Another class that programs import from here -> its module.
_CLASSES = {
    "LoadedTranslator": "translation.translator",
    "TranslatorOptions": "translation.translation_options",
    "TextOptions": "translation.translation_options",
    "BeamOptions": "translation.translation_options",
    "Checkpoint": "checkpoints.checkpoint",
}

#: Modules that register something when they are imported, besides the families' models.
_REGISTERING = ("criterions", "optim", "tasks", "moses_normalized")


def register_with_fairseq() -> None:
    """Register all that is listed above; a second call does nothing."""
    from fairseq_compat.versions import fairseq_problem

    problem = fairseq_problem()
    if problem is not None:
        raise fairseq_compat.UserError(problem)
    # Usually Python installs the hook at its start, but not from every folder (pip install --target).
    fairseq_compat.install()
    for name in _REGISTERING:
        importlib.import_module(f"{__name__}.{name}")
    for family in FAMILIES.values():
        # Programs may import the models from their paths of before each family got a folder.
        sys.modules[f"{__name__}.models.{family}_transformer"] = _model(family)


def _model(family: str) -> Any:
    return importlib.import_module(f"{__name__}.models.{family}.model")


def __getattr__(name: str) -> Any:
    # Imported when they are asked for: cell and layers need no fairseq, and `--help` no torch.
    if name in FAMILIES:
        register_with_fairseq()
        return getattr(_model(FAMILIES[name]), name)
    if name in _CLASSES:
        register_with_fairseq()
        return getattr(importlib.import_module(f"{__name__}.{_CLASSES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if "fairseq" in sys.modules:
    # fairseq imports its --user-dir, or a program has imported fairseq before.
    register_with_fairseq()
else:

    @patch("fairseq")
    def plugin_before_fairseq(module: Any) -> None:
        """A program that imports the plugin before fairseq has none of its models."""
        # If a module of the plugin imports fairseq at this moment, those that register cannot import that module yet.
        for name, plugin_module in sys.modules.items():
            if name.startswith(f"{__name__}.") and getattr(plugin_module.__spec__, "_initializing", False):
                return
        register_with_fairseq()

    @patch("fairseq.utils", function="import_user_module")
    def module_before_fairseq(original: Any, args: Any) -> None:
        """A program that imports a module of the plugin before fairseq has none of its models among the options."""
        original(args)
        register_with_fairseq()
