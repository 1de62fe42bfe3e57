"""The systems of "Multi-Unit Transformers for Neural Machine Translation" and its baselines.

English-German and Chinese-English are here; the corpora of the paper's NIST task are not free, and its ablations, which
have numbers for that task only, are trained on English-German.
"""

from __future__ import annotations

from systems import SMOOTHED, Published, System, Training, adam, noam

_DE, _ZH = "wmt14_en_de", "wmt18_zh_en"
WARM_UP = 16_000

#: The encoder has a table of its own (the parameter counts say so).
_TIED = ("--share-decoder-input-output-embed",)


def _training(width: int, max_tokens: int) -> Training:
    """Section 5.1 and Appendix A: 4 GPUs with 4096 tokens each; the best checkpoint on the validation set is scored."""
    return Training(
        batch_tokens=16_384,
        updates=300_000,
        options=(*adam("(0.9, 0.998)", "1e-9", noam(width, WARM_UP), WARM_UP), *SMOOTHED),
        save=(
            *("--save-interval-updates", "5000", "--validate-interval", "100000", "--no-epoch-checkpoints"),
            *("--keep-interval-updates", "1"),
        ),
        average=0,
        max_tokens=max_tokens,
    )


def _dropout(probability: str) -> tuple[str, ...]:
    return ("--dropout", probability, "--activation-dropout", probability, "--attention-dropout", "0")


def _row(german: float | None = None, chinese: float | None = None) -> dict[str, tuple[Published, ...]]:
    found: dict[str, tuple[Published, ...]] = {}
    if german is not None:
        found[_DE] = (Published("tokenized", german, "Table 2", digits=1),)
    if chinese is not None:
        found[_ZH] = (Published("sacrebleu", chinese, "Table 3", digits=1),)
    return found


def _system(
    arch: str,
    about: str,
    published: dict[str, tuple[Published, ...]],
    *,
    width: int = 512,
    max_tokens: int = 16_384,
    baseline: str | None = "mute_relative",
) -> System:
    options = (*_TIED, *_dropout("0.2"))
    return System(
        arch,
        _training(width, max_tokens),
        about,
        options,
        baseline=baseline,
        published=published,
        for_recipe={_ZH: {"options": (*_TIED, *_dropout("0.1"))}},
    )


def _units(preset: str, about: str) -> System:
    arch = f"mute_transformer_{preset}" if preset else "mute_transformer"
    scores = {"": (28.8, None), "biased": (29.1, None), "sequential": (29.3, 24.5)}
    return _system(arch, about, _row(*scores.get(preset, (None, None))), max_tokens=8192)


SYSTEMS: dict[str, System] = {
    # Tables 2 and 3.
    "mute_baseline": _system("transformer_wmt_en_de", "fairseq's Transformer, base", _row(27.4, 23.4), baseline=None),
    "mute_relative": _system(
        "mute_transformer_wmt_en_de_relative",
        "one unit, relative positions",
        _row(28.2, 23.8),
        baseline="mute_baseline",
    ),
    "mute_big": _system("mute_transformer_wmt_en_de_big", "one unit, Big", _row(28.6), width=1024, max_tokens=8192),
    "mute": _units("", "4 units"),
    "mute_biased": _units("biased", "4 units, biased inputs"),
    "mute_sequential": _units("sequential", "4 units, biased inputs, learned order"),
    # Table 4: less one thing each.
    **{
        f"mute_sequential_no_{part}": _units(f"sequential_no_{part}", f"without {what}")
        for part, what in (
            ("identity", "the identity unit"),
            ("swap", "the swapping unit"),
            ("disorder", "the disorder unit"),
            ("mask", "the mask unit"),
            ("bias", "biased inputs"),
        )
    },
    # Table 6 and Figure 2.
    "mute_shared_attention": _units("shared_attention", "one attention for all units"),
    "mute_shared_ffn": _units("shared_ffn", "one feed-forward net for all units"),
    **{f"mute_{units}u": _units(f"{units}u", f"{units} units") for units in (1, 2, 3, 5, 6)},
}
