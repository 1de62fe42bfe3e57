"""Systems for IWSLT14 German-English: all families at the size of ``transformer_iwslt_de_en``.

Corpus, batch, rate, dropout, weight decay and the choice of the best checkpoint are those of fairseq's own example; all
systems have them. Nothing of the papers is trained on this corpus.
"""

from __future__ import annotations

from dataclasses import replace

from systems import PRE_NORM, SMOOTHED, Dropout, Stage, System, Training, adam, both

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


def _system(arch: str, about: str, *options: str, baseline: str | None = "transformer") -> System:
    return System(arch, _training(), about, (*_TIED, *options), baseline=baseline)


def _relative(system: System) -> System:
    return replace(system, differs={"positions": "relative positions are what it adds"})


SYSTEMS: dict[str, System] = {
    "transformer": _system("transformer_iwslt_de_en", "fairseq's Transformer", baseline=None),
    "transformer_pre_norm": _system("transformer_iwslt_de_en", "the same, pre-norm", *PRE_NORM),
    "transformer_relative": _relative(
        _system(
            "sdt_transformer_iwslt_de_en",
            "pre-norm, relative positions (keys)",
            *_UNCONNECTED,
            baseline="transformer_pre_norm",
        )
    ),
    "depthwise_lstm": _system("depthwise_lstm_transformer_iwslt_de_en", "layers connected by a depth-wise LSTM"),
    "depthwise_lstm_open": _system(
        "depthwise_lstm_transformer_open",
        "depth-wise LSTM with open, quiet gates and a direct way from attention to the state; not the paper's",
        *(*both("attention-heads", 4), "--depthwise-hidden-dim", "1024"),
        baseline="depthwise_lstm",
    ),
    "mute_1u": _relative(
        _system(
            "mute_transformer_iwslt_de_en",
            "one unit: pre-norm, relative positions (keys and values)",
            *("--encoder-units", "1"),
            baseline="transformer_pre_norm",
        )
    ),
    "mute": _system("mute_transformer_iwslt_de_en", "4 units", baseline="mute_1u"),
    "mute_sequential": _system(
        "mute_transformer_iwslt_de_en",
        "4 units, biased inputs, learned order",
        *("--unit-inputs", "identity,swap,mask,disorder", "--unit-sequential"),
        baseline="mute_1u",
    ),
    "deep": _system(
        "sdt_transformer_iwslt_de_en",
        "12 encoder layers from the start, relative positions (keys)",
        *(*_UNCONNECTED, *_DEEP),
        baseline="transformer_relative",
    ),
    "deep_blocks": _system(
        "sdt_transformer_iwslt_de_en", "the same, blocks of 6 layers connected", *_DEEP, baseline="deep"
    ),
    "sdt": replace(
        _system("sdt_transformer_iwslt_de_en", "grown from 6 to 12 encoder layers, blocks connected", baseline="deep"),
        training=_training("inverse_sqrt_restart"),
        stages=(Stage(6, 15), Stage(12, None)),
    ),
}
