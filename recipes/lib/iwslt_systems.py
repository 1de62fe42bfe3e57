"""Systems for IWSLT14 German-English: all families at the size of ``transformer_iwslt_de_en``.

Corpus, batch, rate, dropout, weight decay and the choice of the best checkpoint are those of fairseq's own example; all
systems have them. Nothing of the papers is trained on this corpus.
"""

from __future__ import annotations

from typing import Any

from systems import PRE_NORM, SMOOTHED, Dropout, Stage, System, Training, adam

_UPDATES = 50_000
_TIED = ("--share-decoder-input-output-embed",)
_UNCONNECTED = ("--encoder-block-size", "0")
_DEEP = ("--encoder-layers", "12")


def _training(scheduler: str = "inverse_sqrt") -> Training:
    return Training(
        batch_tokens=4096,
        updates=_UPDATES,
        dropout=Dropout(0.3, attention=0, activation=0),
        options=(
            *(*adam("(0.9, 0.98)", "1e-8", 5e-4, 4000, scheduler), "--weight-decay", "0.0001", *SMOOTHED),
            *("--eval-bleu", "--eval-bleu-args", '{"beam": 5, "max_len_a": 1.2, "max_len_b": 10}'),
            *("--eval-bleu-detok", "moses", "--eval-bleu-remove-bpe"),
            *("--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric"),
        ),
        save=("--keep-last-epochs", "5"),
        average=0,
        max_tokens=4096,
    )


_PLAIN, _SDT, _MUTE = (f"{family}transformer_iwslt_de_en" for family in ("", "sdt_", "mute_"))
_RELATIVE = {"positions": "relative positions are what it adds"}


def _system(arch: str, about: str, baseline: str | None, *options: str, **more: Any) -> System:
    return System(arch, about=about, options=(*_TIED, *options), baseline=baseline, **{"training": _training(), **more})


SYSTEMS: dict[str, System] = {
    "transformer": _system(_PLAIN, "fairseq's Transformer", None),
    "transformer_pre_norm": _system(_PLAIN, "the same, pre-norm", "transformer", *PRE_NORM),
    "transformer_relative": _system(
        _SDT, "pre-norm, relative positions (keys)", "transformer_pre_norm", *_UNCONNECTED, differs=_RELATIVE
    ),
    "depthwise_lstm": _system(f"depthwise_lstm_{_PLAIN}", "layers connected by a depth-wise LSTM", "transformer"),
    "depthwise_lstm_open": _system(
        "depthwise_lstm_transformer_open",
        "depth-wise LSTM with open, quiet gates and a direct way from attention to the state; not the paper's",
        "depthwise_lstm",
        *("--encoder-attention-heads", "4", "--decoder-attention-heads", "4", "--depthwise-hidden-dim", "1024"),
    ),
    "mute_1u": _system(
        _MUTE,
        "one unit: pre-norm, relative positions (keys and values)",
        "transformer_pre_norm",
        *("--encoder-units", "1"),
        differs=_RELATIVE,
    ),
    "mute": _system(_MUTE, "4 units", "mute_1u"),
    "mute_sequential": _system(
        _MUTE,
        "4 units, biased inputs, learned order",
        "mute_1u",
        *("--unit-inputs", "identity,swap,mask,disorder", "--unit-sequential"),
    ),
    "deep": _system(
        _SDT,
        "12 encoder layers from the start, relative positions (keys)",
        "transformer_relative",
        *(*_UNCONNECTED, *_DEEP),
    ),
    "deep_blocks": _system(_SDT, "the same, blocks of 6 layers connected", "deep", *_DEEP),
    "sdt": _system(
        _SDT,
        "grown from 6 to 12 encoder layers, blocks connected",
        "deep",
        training=_training("inverse_sqrt_restart"),
        stages=(Stage(6, 15), Stage(12, None)),
    ),
}
