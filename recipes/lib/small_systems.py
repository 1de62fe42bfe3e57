"""Systems of the recipes that anyone can run today: the families at sizes that fit small corpora.

Nothing was published for them. docs/results.md compares some of them, with the baselines that a reviewer asks
for: pre-norm and post-norm, relative positions without units or depth, depth without growth, and what
else connects deep stacks. Within a recipe all have the same data, batches, updates, dropouts and, where they have any,
relative positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from systems import PRE_NORM, SMOOTHED, TIED, Dropout, Stage, System, Training, adam, depth, saved_every


@dataclass(frozen=True)
class Size:
    """What depends on the corpus. The models are as small as is usual for Multi30k, where larger ones overfit.

    Attributes:
        dropout: of embeddings and sub-layer outputs; attention weights and the inside of feed-forward nets have none.
        rate: peak of the learning rate.
        updates: at most.
        width, inner, heads: of all layers; ``inner`` is that of feed-forward nets and depth-wise cells.
        layers: of encoders that are not deep.
        decoder: layers of the decoder.
        deep: layers of deep encoders.
        batch_tokens: of an update.
        warm_up: updates until the rate is at its peak.
        patience: a training ends when so many validations in a row are no better; 0: it does not end before.
    """

    dropout: float
    rate: float = 3e-3
    updates: int = 6000
    width: int = 128
    inner: int = 256
    heads: int = 4
    layers: int = 4
    decoder: int = 4
    deep: int = 12
    batch_tokens: int = 8192
    warm_up: int = 1000
    patience: int = 10


MULTI30K = Size(dropout=0.3)
TATOEBA = Size(dropout=0.1)
#: The papers' base, for a GPU.
MIXED = Size(dropout=0.3, rate=5e-4, updates=12_000, width=512, inner=2048, heads=8, layers=6, decoder=6, deep=18)

#: A made corpus, of which no sentence comes twice: 64 sentences of 34 words and an end in an update.
HOPS = Size(
    dropout=0,
    rate=1e-3,
    updates=6000,
    width=64,
    inner=128,
    layers=2,
    decoder=1,
    deep=8,
    batch_tokens=64 * 35,
    patience=0,
)

#: Checkpoints are validated, and kept, every so many updates; so many are averaged.
INTERVAL, AVERAGE = 200, 10

#: The same relative positions, those of shallow-to-deep training, for all systems that have any.
_RELATIVE = ("--max-relative-positions", "8", "--relative-position-terms", "key")

_LSTM, _SDT, _MUTE = "depthwise_lstm_transformer", "sdt_transformer", "mute_transformer"
_LESS = {"dropout": "a third is what it is there for"}

#: Variants of the system "deep": the end of a name -> what it is, the connection of both stacks, further options.
CONNECTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "average": ("weighted averages of all outputs below", ("average",)),
    "attention": ("attention over what all layers below have added", ("attention",)),
    "hyper": ("hyper-connections, 4 streams", ("hyper",)),
    "manifold": ("hyper-connections on a manifold, 4 streams", ("hyper", "--hyper-manifold")),
    "value_residual": ("values of the first layer in all others", ("value-residual",)),
    "scaled_norms": ("layer norms divided by the root of the layer", ("residual", "--norm-scaling")),
}


def stages(size: Size, updates: int) -> tuple[Stage, ...]:
    """Return stages that grow to full depth by way of twice the first one, over the first half of the updates."""
    quarter = updates // 4
    return (Stage(size.layers, updates=quarter), Stage(2 * size.layers, updates=quarter), Stage(size.deep))


def systems(size: Size) -> dict[str, System]:
    """Return the systems of a small recipe by name."""
    sides = {"embed-dim": size.width, "attention-heads": size.heads}
    shape = (*(f"--{side}-{name}={n}" for name, n in sides.items() for side in ("encoder", "decoder")), *TIED)
    inner = (*shape, *(f"--{side}-ffn-embed-dim={size.inner}" for side in ("encoder", "decoder")))
    same = depth(size.layers, size.decoder)
    deep = depth(size.deep, size.decoder)
    unconnected, blocks = ("--encoder-block-size", "0"), ("--encoder-block-size", str(size.layers))
    deep_model = (*inner, *deep, *unconnected, *_RELATIVE)
    cell = (*shape, *same, "--depthwise-hidden-dim", str(size.inner))
    growing = (*inner, "--decoder-layers", str(size.decoder), *blocks, *_RELATIVE)
    training, wide = _training(size), (*inner, *same)
    narrow = _training(size, dropout=size.dropout / 3)
    forget = "depth-wise LSTM, forget gates start with a bias of"

    def row(name: str, arch: str, about: str, baseline: str | None, *model: str, **more: Any) -> tuple[str, System]:
        return name, System(arch, about=about, options=model, baseline=baseline, **{"training": training, **more})

    rows = [
        row("transformer", "transformer", "fairseq's Transformer, pre-norm", None, *inner, *PRE_NORM, *same),
        row("transformer_post_norm", "transformer", "fairseq's Transformer, post-norm", "transformer", *wide),
        row(
            "transformer_relative", _SDT, "pre-norm, relative positions", "transformer", *wide, *unconnected,
            *_RELATIVE, differs={"positions": "relative positions are what it adds"},
        ),
        row("depthwise_lstm", _LSTM, "layers connected by a depth-wise LSTM", "transformer", *cell),
        row("depthwise_lstm_forget1", _LSTM, f"{forget} 1", "depthwise_lstm", *cell, "--depthwise-forget-bias", "1"),
        row("depthwise_lstm_forget2", _LSTM, f"{forget} 2", "depthwise_lstm", *cell, "--depthwise-forget-bias", "2"),
        row(
            "depthwise_lstm_open", f"{_LSTM}_open",
            "depth-wise LSTM with open, quiet gates and a direct way from attention to the state; not the paper's",
            "transformer", *cell,
        ),
        # Under the same dropout the outputs of the depth-wise model are several times as noisy (docs/results.md).
        row(
            "transformer_less_dropout", "transformer", "fairseq's Transformer, pre-norm, a third of the dropout",
            "transformer", *inner, *PRE_NORM, *same, training=narrow, differs=_LESS,
        ),
        row(
            "depthwise_lstm_less_dropout", _LSTM, "depth-wise LSTM, a third of the dropout", "depthwise_lstm", *cell,
            training=narrow, differs=_LESS,
        ),
        row("mute", _MUTE, "4 units, relative positions", "transformer_relative", *wide, *_RELATIVE),
        row(
            "mute_sequential", f"{_MUTE}_sequential",
            "4 units, biased inputs, learned order, relative positions", "mute", *wide, *_RELATIVE,
        ),
        row(
            "deep", _SDT, f"encoder of {size.deep} layers from the start, relative positions", "transformer_relative",
            *deep_model,
        ),
        row(
            "deep_blocks", _SDT,
            f"encoder of {size.deep} layers in connected blocks of {size.layers}, relative positions", "deep", *inner,
            *deep, *blocks, *_RELATIVE,
        ),
        row(
            "sdt", _SDT,
            f"encoder in blocks of {size.layers}, grown from {size.layers} to {size.deep} layers, relative positions",
            "deep_blocks", *growing, stages=stages(size, size.updates),
            training=_training(size, scheduler="inverse_sqrt_restart"),
        ),
        row(
            "sdt_no_restart", _SDT, "the same without restarts of the learning rate", "sdt", *growing,
            stages=stages(size, size.updates),
        ),
        *(
            row(
                f"deep_{name}", _SDT, f"encoder of {size.deep} layers: {about}, relative positions", "deep",
                *deep_model, "--encoder-connection", connection, "--decoder-connection", connection, *more,
            )
            for name, (about, (connection, *more)) in CONNECTIONS.items()
        ),
    ]  # fmt: skip
    return dict(rows)


def _training(size: Size, *, scheduler: str = "inverse_sqrt", dropout: float | None = None) -> Training:
    save = saved_every(INTERVAL, keep=AVERAGE + size.patience)
    if size.patience:
        save = (*save, "--patience", str(size.patience))
    return Training(
        batch_tokens=size.batch_tokens,
        updates=size.updates,
        dropout=Dropout(size.dropout if dropout is None else round(dropout, 4), attention=0, activation=0),
        options=(*adam("(0.9, 0.98)", "1e-9", size.rate, size.warm_up, scheduler), *SMOOTHED),
        save=save,
        average=AVERAGE,
        up_to_best=True,
        max_tokens=size.batch_tokens,
    )
