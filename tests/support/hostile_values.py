"""Option values that run code where they are evaluated as Python, and the options of fairseq that once were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

#: Each makes the file ``{witness}`` if it is evaluated; they reach Python in different ways.
HOSTILE: dict[str, str] = {
    "import": "__import__('pathlib').Path('{witness}').touch()",
    "in a list": "[__import__('os').system('touch {witness}'), 1][1:]",
    "in a tuple": "(0.9, open('{witness}', 'w') and 0.98)",
    "in a dictionary": "{{'a': open('{witness}', 'w')}}",
    "lambda": "(lambda: open('{witness}', 'w'))()",
    "comprehension": "[open(path, 'w') and 1 for path in ['{witness}']]",
    "subclasses": "[one for one in ().__class__.__base__.__subclasses__() if one.__name__ == '_wrap_close'][0]"
    ".__init__.__globals__['system']('touch {witness}')",
    "f-string": "f\"{{open('{witness}', 'w')}}\"",
    "exec": "exec(\"open('{witness}', 'w')\")",
    "starred": "[*map(open, ['{witness}'], ['w'])]",
    "conditional": "1 if open('{witness}', 'w') else 2",
    "repeated": "[open('{witness}', 'w') and 1] * 3",
}


def hostile(kind: str, witness: Path) -> str:
    """A value that makes ``witness`` when it is evaluated."""
    return HOSTILE[kind].format(witness=witness)


#: Architectures of fairseq, and their options that fairseq evaluates while it builds a model.
OF_MODELS: dict[str, tuple[str, ...]] = {
    "fconv": ("encoder_layers", "decoder_layers", "decoder_attention"),
    "fconv_lm": ("decoder_layers", "decoder_attention", "adaptive_softmax_cutoff"),
    "fconv_self_att": (
        "pretrained", "encoder_layers", "encoder_attention", "decoder_layers", "decoder_attention", "self_attention",
        "project_input", "gated_attention", "downsample",
    ),
    "lightconv": ("adaptive_softmax_cutoff",),
    "lightconv_lm": ("adaptive_softmax_cutoff", "adaptive_input_cutoff", "character_filters"),
    "lstm": ("decoder_attention", "adaptive_softmax_cutoff"),
    "lstm_lm": ("adaptive_softmax_cutoff",),
    "transformer": ("adaptive_softmax_cutoff",),
    "transformer_lm": ("adaptive_softmax_cutoff", "adaptive_input_cutoff", "character_filters"),
    "s2t_berard": ("input_layers", "conv_layers"),
    "wav2vec": ("conv_feature_layers", "conv_aggregator_layers"),
    "wav2vec2": ("conv_feature_layers",),
    "hubert": ("conv_feature_layers",),
}  # fmt: skip

#: What has to be set for an option to be read.
BESIDES: dict[tuple[str, str], dict[str, Any]] = {
    ("transformer_lm", "character_filters"): {"character_embeddings": True},
    ("transformer_lm", "adaptive_input_cutoff"): {"adaptive_input": True},
    ("lightconv_lm", "character_filters"): {"character_embeddings": True},
    ("lightconv_lm", "adaptive_input_cutoff"): {"adaptive_input": True},
    ("lstm", "adaptive_softmax_cutoff"): {"criterion": "adaptive_loss"},
    ("lstm_lm", "adaptive_softmax_cutoff"): {"criterion": "adaptive_loss"},
    ("fconv_lm", "adaptive_softmax_cutoff"): {"criterion": "adaptive_loss"},
}

#: Small sizes, by architecture.
_NARROW = {f"{side}_{name}": 8 for side in ("encoder", "decoder") for name in ("embed_dim", "ffn_embed_dim")}
_SMALL = {**_NARROW, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
_FCONV = {**_NARROW, "encoder_layers": "[(8, 3)]", "decoder_layers": "[(8, 3)]"}
_LM = {**_SMALL, "decoder_layers": 1, "decoder_kernel_size_list": [3]}
_SPEECH = {"encoder_layers": 1, **{name: _SMALL[name] for name in _SMALL if name.startswith("encoder")}}
SIZES: dict[str, dict[str, Any]] = {
    "fconv": _FCONV,
    "fconv_self_att": _FCONV,
    "fconv_lm": {**_NARROW, "decoder_layers": "[(8, 3)]"},
    "lightconv": {**_SMALL, "encoder_kernel_size_list": [3] * 7, "decoder_kernel_size_list": [3] * 6},
    "lightconv_lm": _LM,
    "transformer_lm": _LM,
    "transformer": {**_SMALL, "encoder_layers": 1, "decoder_layers": 1},
    "wav2vec2": {**_SPEECH, "conv_pos_groups": 2},
    "hubert": {**_SPEECH, "conv_pos_groups": 2},
}

SITES = [(arch, option) for arch, options in OF_MODELS.items() for option in options]


def model_options(arch: str, **changes: Any) -> Any:
    """All options of an architecture of fairseq: its defaults, and ``changes``."""
    from argparse import Namespace

    from fairseq.dataclass.utils import _set_legacy_defaults
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY

    if arch in MODEL_DATACLASS_REGISTRY:
        from omegaconf import OmegaConf, open_dict

        options = OmegaConf.structured(MODEL_DATACLASS_REGISTRY[arch])
        with open_dict(options):
            for name, value in {"tokens_per_sample": 8, "max_target_positions": 8, **changes}.items():
                options[name] = value
        return options
    positions = {"max_source_positions": 32, "max_target_positions": 32, "tokens_per_sample": 32}
    speech = {"input_feat_per_channel": 40, "input_channels": 1}
    options = Namespace(arch=arch, criterion="cross_entropy", **positions, **speech)
    vars(options).update(changes)
    _set_legacy_defaults(options, ARCH_MODEL_REGISTRY[arch])
    ARCH_CONFIG_REGISTRY[arch](options)
    return options


def build(arch: str, **changes: Any) -> Any:
    """Build a model of fairseq as its tasks do."""
    from fairseq.models import ARCH_MODEL_REGISTRY
    from tiny_models import task_of

    task = task_of()
    task.dictionary = task.output_dictionary = task.source_dictionary
    task.dictionaries = [task.dictionary]
    task.cfg = SimpleNamespace(sample_rate=16000)
    builder: Callable[..., Any] = ARCH_MODEL_REGISTRY[arch].build_model
    return builder(model_options(arch, **{**SIZES.get(arch, {}), **changes}), task)
