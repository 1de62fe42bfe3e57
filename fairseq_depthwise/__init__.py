"""Deep and wide Transformers for translation: a fairseq plugin (``--user-dir fairseq_depthwise``).

With fairseq, or after :func:`register_with_fairseq`, there are by their names on its command line:

- architectures: ``depthwise_lstm_transformer``, ``mute_transformer``, ``sdt_transformer`` and their presets, and
  ``linearized_transformer``;
- criterions: ``label_smoothed_cross_entropy_with_auxiliary``, ``linearization_probe``;
- learning rate schedule ``inverse_sqrt_restart``, optimizer ``fused_adam``, tokenizer ``moses_normalized``;
- tasks: ``translation_layer_growth``, ``translation_multi_simple_epoch_layer_growth``.

Programs import the models from here: ``DepthwiseLSTMTransformer``, ``MuteTransformer`` and ``SDTTransformer``, which
registers, too. Other programs need no fairseq for cell, layers, connections and attention: where nobody has imported
fairseq, importing this package registers nothing until somebody does.
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

#: What registers something where it is imported, beside the families' models.
_REGISTERING = ("criterions", "optim", "tasks", "moses_normalized")


def register_with_fairseq() -> None:
    """Register all that is listed above; a second call does nothing."""
    from fairseq_compat.versions import fairseq_problem

    if (problem := fairseq_problem()) is not None:
        raise fairseq_compat.UserError(problem)
    fairseq_compat.install()  # for folders that Python reads no start-up hooks from (pip install --target)
    for name in _REGISTERING:
        importlib.import_module(f"{__name__}.{name}")
    for family in FAMILIES.values():
        # Programs may import the models from the paths that they had before each family got a folder.
        sys.modules[f"{__name__}.models.{family}_transformer"] = _model(family)


def _model(family: str) -> Any:
    return importlib.import_module(f"{__name__}.models.{family}.model")


def __getattr__(name: str) -> Any:
    if name not in FAMILIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    register_with_fairseq()
    return getattr(_model(FAMILIES[name]), name)


if "fairseq" in sys.modules:  # whose --user-dir this is, or a program that goes on with it
    register_with_fairseq()
else:

    @patch("fairseq")
    def plugin_before_fairseq(module: Any) -> None:
        """A program that imports the plugin before fairseq has none of its models."""
        own = [one for name, one in sys.modules.items() if name.startswith(f"{__name__}.")]
        # A module of the plugin that imports fairseq at this moment cannot be imported by those that register.
        if not any(getattr(one.__spec__, "_initializing", False) for one in own):
            register_with_fairseq()

    @patch("fairseq.utils", function="import_user_module")
    def module_before_fairseq(original: Any, args: Any) -> None:
        """A program that imports a module of the plugin before fairseq has none of its models among the options."""
        original(args)
        register_with_fairseq()
