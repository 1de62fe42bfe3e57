"""How much of what encoders and decoders compute in training is dropout's noise.

Each model computes the same batch several times with other masks. Noise is the variance of its outputs, after the last
norm, over the masks; signal the mean square of their mean. Where the ratio is 1, half of what the next part reads is
noise. Models are systems of the small recipes with weights at random, or checkpoints; the same dropout is set in all,
of embeddings and sub-layer outputs, and then in one of the two alone. Writes the record ``dropout_noise``.

    python benchmarks/dropout_noise.py
    python benchmarks/dropout_noise.py --checkpoints stock/checkpoint_last.pt lstm/checkpoint_last.pt --data data-bin
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from bench_rows import PROTOCOL, ROWS, SAME_DROPOUT, SIZES
from fairseq.modules import FairseqDropout
from fairseq.tasks.translation import TranslationTask
from program import integer, make_parser, names_of, positive, record_name, run_program, tell
from record import finish, setup_of
from torch import Tensor, nn
from workloads import Batch, Side, corpus, dictionary_of

from fairseq_depthwise.analysis.loaded_model import load_trained
from fairseq_depthwise.modules.dropout import Dropout

#: Where dropout acts -> whether a module's name belongs there.
SITES: Mapping[str, Callable[[str], bool]] = {
    "all": lambda name: True,
    "embeddings": lambda name: "layers." not in name,
    "sub-layers": lambda name: "layers." in name,
}


def noise_ratio(outputs: Sequence[Tensor]) -> float:
    """Return noise divided by signal of outputs with different masks, T x B x C each, without bias for their number."""
    stacked = torch.stack(list(outputs)).double()
    noise = stacked.var(dim=0, unbiased=True).mean()
    signal = stacked.mean(dim=0).square().mean() - noise / len(outputs)
    return float(noise / signal)


def set_dropout(model: nn.Module, probability: float, site: str) -> None:
    """Give every dropout of embeddings and sub-layers that is not 0 another probability, 0 outside of the site."""
    for name, module in model.named_modules():
        attribute = {FairseqDropout: "p", Dropout: "probability"}.get(type(module))
        if attribute and getattr(module, attribute) > 0:
            # Never 0, or it would not be found the next time.
            setattr(module, attribute, probability if SITES[site](name) else 1e-12)


def measure(model: Any, batches: Sequence[Batch], probability: float, masks: int) -> dict[str, dict[str, float]]:
    """Return stack -> site -> ratio, the mean over batches."""
    found: dict[str, dict[str, float]] = {"encoder": {}, "decoder": {}}
    model.train()
    for site in SITES:
        set_dropout(model, probability, site)
        ratios: dict[str, list[float]] = {side: [] for side in found}
        for batch in batches:
            inputs, outputs = batch["net_input"], {side: [] for side in found}
            for _ in range(masks):
                with torch.no_grad():
                    encoded = model.encoder(inputs["src_tokens"], inputs["src_lengths"])
                    features, _extra = model.decoder(
                        inputs["prev_output_tokens"], encoder_out=encoded, features_only=True
                    )
                outputs["encoder"].append(encoded["encoder_out"][0])
                outputs["decoder"].append(features)
            for side, several in outputs.items():
                ratios[side].append(noise_ratio(several))
        for side in found:
            found[side][site] = sum(ratios[side]) / len(ratios[side])
    return found


def models(options: argparse.Namespace) -> Iterator[tuple[str, Any, Sequence[Batch]]]:
    """Yield the name of each model, the model, and its batches."""
    if options.checkpoints:
        for path in options.checkpoints:
            loaded = load_trained(path, options.data)
            batches = loaded.batches("valid", max_sentences=options.sentences, max_tokens=2000)
            yield path, loaded.model, list(batches)
        return
    size = SIZES["small"]
    dictionary = dictionary_of(size.vocabulary)
    data = corpus(dictionary, options.sentences)
    batch = data.collater([data[index] for index in range(options.sentences)])
    for name in options.systems:
        for seed in range(1, options.seeds + 1):
            torch.manual_seed(seed)
            cfg = Side(ROWS[name].arch, (*ROWS[name].options(size), *SAME_DROPOUT)).configuration("cpu")
            yield name, TranslationTask(cfg.task, dictionary, dictionary).build_model(cfg.model), [batch]


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure and write the record."""
    rows = []
    for name, model, batches in models(options):
        for probability in options.dropout:
            torch.manual_seed(1)
            rows.append({"model": name, "dropout": probability, **measure(model, batches, probability, options.masks)})
        tell(f"{name}: {rows[-1]}")
    setup = setup_of("dropout_noise", given, masks=options.masks, sentences=options.sentences)
    finish(options.records, options.name, {"setup": setup, "rows": rows})


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = make_parser(__doc__)
    add, shown = parser.add_argument, "(default: %(default)s)"
    add("--name", type=record_name, default="dropout_noise", help=f"of the record {shown}")
    add("--systems", type=names_of(PROTOCOL), default=list(PROTOCOL), metavar="LIST", help="default: all")
    add("--checkpoints", nargs="+", default=[], metavar="FILE", help="trained models in the place of systems")
    add("--data", default="data-bin", help=f"their binarized data, of which the set valid is used {shown}")
    add("--dropout", type=positive, nargs="+", default=[0.1, 0.3], metavar="P", help="probabilities (default: 0.1 0.3)")
    add("--seeds", type=integer(1), default=3, help=f"of weights at random {shown}")
    add("--masks", type=integer(2), default=8, help=f"of each batch {shown}")
    add("--sentences", type=integer(1), default=64, help=f"of which the batches are made {shown}")
    options = parser.parse_args(given)
    for probability in options.dropout:
        if probability >= 1:
            parser.error(f"--dropout {probability:g} has to be below 1")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    return run_program("dropout_noise", parse_options, run, arguments)


if __name__ == "__main__":
    sys.exit(main())
