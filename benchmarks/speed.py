"""Speed of every model family compared with stock fairseq's Transformer of equal depth.

Rows that are compared with the same one take turns, round by round, on the same sentences and batches, through
fairseq's own trainer and beam search. Writes the record ``bench_DEVICE_SIZE``.

    python benchmarks/speed.py --size base --rows depth-wise "mute 4" "sdt 6" --precisions fp32 bf16
    python benchmarks/speed.py --rows graphs --parts decoding
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import records
import torch
from fairseq import options as fairseq_options
from fairseq import utils
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks import TASK_REGISTRY
from fairseq.trainer import Trainer
from recipe_step import run_step
from toml_files import read_toml
from turns import take_turns, timed

import fairseq_depthwise  # noqa: F401  # registers the models
from fairseq_compat import UserError
from fairseq_depthwise.backends import compiled, onnx_files
from fairseq_depthwise.backends.graph_search import GraphSearch, SearchLimits

TRAINING, DECODING = "training", "decoding"

#: Precision -> the type that a model is cast to. Rows may have a precision of their own, in which they decode only.
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

#: Trains with a batch, or decodes it with a beam size: work(batch, beam).
Work = Callable[[Any, int], Any]

#: Beam sizes; 4 first, which the papers use.
BEAMS = (4, 1)

#: Number of batches in a turn.
BATCHES = 2

#: Name -> width of layers, width of hidden nets, attention heads, entries of the joined dictionary.
SIZES = {
    "tiny": (16, 32, 2, 64),
    "small": (128, 256, 4, 6056),  # recipes/multi30k
    "narrow": (128, 512, 4, 8000),
    "middle": (256, 1024, 4, 8000),
    "base": (512, 2048, 8, 32768),
}

#: fairseq's loss, computed from scores without log-probabilities of the whole vocabulary; stock has fairseq's own.
_OUR_LOSS = ("--criterion", "label_smoothed_cross_entropy_with_auxiliary")

#: Family -> architecture and further options. CTranslate2 is no model but another program, which decodes stock's.
FAMILIES: dict[str, tuple[str, ...]] = {
    "stock": ("transformer",),
    "stock pre-norm": ("transformer", "--encoder-normalize-before", "--decoder-normalize-before"),
    "depth-wise": ("depthwise_lstm_transformer", *_OUR_LOSS),
    "mute": ("mute_transformer", *_OUR_LOSS),
    "sdt": ("sdt_transformer", *_OUR_LOSS),
    "ctranslate2": ("transformer",),
}


@dataclass(frozen=True)
class Row:
    """A model that is measured, as a line of ``rows.toml``.

    Attributes:
        family: one of FAMILIES.
        layers: number of encoder layers; decoders have 6.
        options: fairseq options that the other rows of the family do not have.
        precision: the row's precision; by default that of the run.
        compared: name of the row to compare with; by default stock fairseq with as many layers.
    """

    name: str
    family: str
    layers: int = 6
    options: str = ""
    precision: str = ""
    compared: str = ""

    @property
    def base(self) -> str:
        """The name of the row that it is compared with."""
        pre_norm = " pre-norm" if self.family in ("stock pre-norm", "mute", "sdt") else ""
        return self.compared or f"stock {self.layers}{pre_norm}"

    @property
    def parts(self) -> tuple[str, ...]:
        return (DECODING,) if self.precision or self.family == "ctranslate2" else (TRAINING, DECODING)

    def arguments(self, size: str) -> list[str]:
        """Return fairseq's options of the model, the architecture first."""
        width, hidden, heads, _ = SIZES[size]
        arguments = ["--arch", *FAMILIES[self.family], f"--encoder-layers={self.layers}", "--decoder-layers=6"]
        # The families' default dropouts differ, and all rows have to do the same work.
        arguments += ["--attention-dropout=0", "--activation-dropout=0"]
        for side in ("encoder", "decoder"):
            arguments += [f"--{side}-embed-dim={width}", f"--{side}-attention-heads={heads}"]
            if self.family != "depth-wise":
                arguments += [f"--{side}-ffn-embed-dim={hidden}"]
        if self.family == "depth-wise":
            arguments += [f"--depthwise-hidden-dim={hidden}"]
        return [*arguments, *self.options.split()]


#: Name -> row, in the order of the tables.
ROWS = {name: Row(name, **fields) for name, fields in read_toml(Path(__file__).with_name("rows.toml")).items()}

#: What --rows takes beside names.
CHOICES = {
    "quick": ["depth-wise", "ctranslate2", "mute 1", "mute 4", "sdt 6", "sdt 12", "sdt 24", "sdt 48"],
    "connections": [name for name, row in ROWS.items() if row.compared],
    "graphs": ["depth-wise", "ctranslate2", "mute 4", "sdt 6", *(name for name, row in ROWS.items() if row.precision)],
}


# --- the program ------------------------------------------------------------------------------------------------------


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the options, whose defaults depend on the device."""
    parser = records.make_parser(__doc__)
    add = parser.add_argument
    add("--size", choices=SIZES, default="narrow", help="width of all models (default: %(default)s)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="of all models (default: %(default)s)")
    add("--threads", type=records.integer(1), metavar="N", help="on a CPU (default: PyTorch's own choice)")
    add("--train-tokens", type=records.integer(81), metavar="N", help="of a batch (default: 1200, on cuda 16384)")
    add("--rounds", type=records.integer(1), default=5, metavar="N", help="that count (default: %(default)s)")
    add(
        "--model-overrides",
        type=shlex.split,
        default=[],
        metavar="OPTIONS",
        help='fairseq options for all models, like --model-overrides="--decoder-layers 2"',
    )
    add(
        "--rows",
        nargs="+",
        choices=(*CHOICES, *ROWS),
        default=["quick"],
        metavar="ROW",
        help=f"{', '.join(CHOICES)}, or of {'; '.join(ROWS)} (default: quick)",
    )
    add("--precisions", nargs="+", choices=TYPES, default=["fp32"], help="(default: fp32)")
    add("--parts", nargs="+", choices=(TRAINING, DECODING), default=[TRAINING, DECODING], help="(default: both)")
    add(
        "--decode-batches",
        nargs="+",
        type=records.integer(1),
        metavar="N",
        help="sentences translated at once (default: 1 32, on cuda 1 128)",
    )
    add("--name", help="of the record (default: bench_DEVICE_SIZE)")
    options = parser.parse_args(arguments)
    on_gpu = options.device == "cuda"
    options.train_tokens = options.train_tokens or (16384 if on_gpu else 1200)
    options.decode_batches = options.decode_batches or [1, 128 if on_gpu else 32]
    options.name = options.name or f"bench_{options.device}_{options.size}"
    return options


def main() -> None:
    """Measure and write the record."""
    options = parse_options(sys.argv[1:])
    records.prepare_process()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: PyTorch finds no GPU here; give cpu")
    if options.threads:
        torch.set_num_threads(options.threads)
    settings = {name: value for name, value in vars(options).items() if name not in ("device", "records", "threads")}
    settings["commit"] = subprocess.check_output(["git", "describe", "--always", "--dirty"], text=True).strip()
    setup = records.describe_setup("speed", sys.argv[1:], device=options.device, **settings)
    record: dict[str, Any] = {"setup": setup, "rows": {}, "meetings": []}

    # Rows that take turns: one of stock fairseq's, and all that are compared with it.
    groups: dict[str, dict[str, Row]] = {}
    for choice in options.rows:
        for name in CHOICES.get(choice, [choice]):
            base = ROWS[name].base
            group = groups.setdefault(base, {base: ROWS[base]})
            group[name] = ROWS[name]
    for precision in options.precisions:
        for group in groups.values():
            for part in options.parts:
                measure(record, options, precision, part, [row for row in group.values() if part in row.parts])
                records.write_record(options.records, options.name, record)
    records.write_and_print(options.records, options.name, record)


def measure(
    record: dict[str, Any], options: argparse.Namespace, precision: str, part: str, group: Sequence[Row]
) -> None:
    """Measure a part of the rows that take turns; those that cannot be built are left out."""
    # Free the models of earlier groups now, so that this does not happen during a turn.
    gc.collect()
    works: dict[str, Work] = {}
    for row in group:
        try:
            works[row.name] = build_work(row, part, row.precision or precision, options)
        except (Exception, SystemExit) as error:  # any library may raise it; the other rows are still measured
            records.print_progress(f"{row.name} is left out of {part} {precision}: {type(error).__name__}: {error}")
        else:
            record["rows"][row.name] = {"beside": row.base, "options": row.arguments(options.size)}

    cases = [(0, 0)]
    if part == DECODING:
        cases = [(beam, sentences) for beam in BEAMS for sentences in options.decode_batches]
    for beam, sentences in cases:
        batches = build_batches(options, sentences)
        turns = {}
        for name, work in works.items():
            turns[name] = partial(timed, partial(_run_batches, work, batches, beam), options.device)
        # Decoding is measured in sentences, training in target tokens.
        amount = sum(int(batch["nsentences" if sentences else "ntokens"]) for batch in batches)
        rows = {}
        for name, seconds in take_turns(turns, options.rounds).items():
            rows[name] = {"seconds": seconds, "amount": [amount] * options.rounds}
        case = {"part": part, "beam": beam, "sentences": sentences}
        record["meetings"].append({"precision": precision, "case": case, "rows": rows})
        records.print_progress(f"{case}, {precision}: {', '.join(rows)}")


def _run_batches(work: Work, batches: Sequence[Any], beam: int) -> None:
    for batch in batches:
        work(batch, beam)


# --- data -------------------------------------------------------------------------------------------------------------


def build_dictionary(size: str) -> Dictionary:
    """Return a dictionary with the number of entries of a size, including fairseq's four special ones."""
    dictionary = Dictionary()
    for number in range(SIZES[size][-1] - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    return dictionary


def build_corpus(dictionary: Dictionary, sentences: int) -> LanguagePairDataset:
    """Return pairs of random sentences with lengths like those of newstest; the same in every run."""
    chance = random.Random(1)
    generator = torch.Generator().manual_seed(1)
    sources: list[torch.Tensor] = []
    targets: list[torch.Tensor] = []
    for _ in range(sentences):
        # The median length is 25 subwords, and a target is about as long as its source.
        length = 25 * chance.lognormvariate(0, 0.5)
        for side, subwords in ((sources, length), (targets, length * chance.lognormvariate(0, 0.15))):
            count = min(80, max(5, round(subwords)))
            tokens = torch.randint(dictionary.nspecial, len(dictionary), (count + 1,), generator=generator)
            tokens[-1] = dictionary.eos()
            side.append(tokens)
    source_sizes = [len(tokens) for tokens in sources]
    target_sizes = [len(tokens) for tokens in targets]
    return LanguagePairDataset(sources, source_sizes, dictionary, targets, target_sizes, dictionary, shuffle=False)


def build_batches(options: argparse.Namespace, sentences: int = 0) -> list[Any]:
    """Return the batches of a turn as fairseq makes them, sorted by length.

    Args:
        sentences: in a batch; by default batches have ``--train-tokens`` tokens, for training.
    """
    # newstest has 3003 sentences. Large batches need more, so that no two share a sentence; the shortest have 5 tokens.
    sentences_per_batch = sentences or options.train_tokens // 5
    dataset = build_corpus(build_dictionary(options.size), sentences=max(3003, BATCHES * sentences_per_batch))
    limits = {"max_sentences": sentences} if sentences else {"max_tokens": options.train_tokens}
    groups = dataset.batch_by_size(dataset.ordered_indices(), **limits)
    # The last batch is smaller than the others.
    groups = groups[:-1] or groups
    batches = []
    for number in range(BATCHES):
        # With two batches: the one a quarter of the way through all, and the one at three quarters.
        group = groups[(2 * number + 1) * len(groups) // (2 * BATCHES)]
        batch = dataset.collater([dataset[index] for index in group])
        batches.append(utils.move_to_cuda(batch) if options.device == "cuda" else batch)
    return batches


# --- works ------------------------------------------------------------------------------------------------------------


def build_work(row: Row, part: str, precision: str, options: argparse.Namespace) -> Work:
    """Return the callable that trains or decodes a row's model."""
    arguments = [*row.arguments(options.size), *options.model_overrides]
    dictionary = build_dictionary(options.size)
    if row.family == "ctranslate2":
        return CTranslate2Decoding(arguments, dictionary, options.device, precision)
    if precision not in TYPES:
        return GraphDecoding(arguments, dictionary, precision)
    work_class = Training if part == TRAINING else Decoding
    return work_class(arguments, dictionary, options.device, precision)


def build_model(arguments: Sequence[str], dictionary: Dictionary, device: str, *further: str) -> tuple[Any, Any, Any]:
    """Return fairseq's configuration of a training run, its task and its model (seed 1)."""
    torch.manual_seed(1)
    words = ["no data", "--criterion", "label_smoothed_cross_entropy", "--label-smoothing=0.1", "--dropout=0.1"]
    words += ["--share-all-embeddings", "--optimizer=adam", "--adam-betas=(0.9, 0.98)", "--max-tokens=4096"]
    words += ["--lr=5e-4", "--lr-scheduler=inverse_sqrt", "--warmup-updates=4000", "--distributed-world-size=1"]
    words += [f"--save-dir={tempfile.gettempdir()}/none", *further, *arguments]
    if device == "cpu":
        words += ["--cpu"]
    parser = fairseq_options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(fairseq_options.parse_args_and_arch(parser, words))
    task = TASK_REGISTRY[cfg.task._name](cfg.task, dictionary, dictionary)
    return cfg, task, task.build_model(cfg.model)


class Training:
    """Training steps through fairseq's Trainer, an update for each batch."""

    def __init__(self, arguments: Sequence[str], dictionary: Dictionary, device: str, precision: str) -> None:
        further = ["--bf16"] if precision == "bf16" else []
        cfg, task, model = build_model(arguments, dictionary, device, *further)
        self.trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
        self.trainer.cuda_env = None  # otherwise every step resets PyTorch's peak memory, which waits for the GPU
        self.trainer.begin_epoch(1)

    def __call__(self, batch: Any, beam: int = 0) -> None:
        self.trainer.train_step([batch], raise_oom=True)  # otherwise fairseq warns and skips the batch


class Decoding:
    """Beam search through fairseq's generator.

    Here and in the searches below, every translation is exactly as long as the padded sources of its batch. So all rows
    do the same number of steps with the same number of hypotheses, wherever untrained models would end a sentence.
    """

    def __init__(self, arguments: Sequence[str], dictionary: Dictionary, device: str, precision: str) -> None:
        cfg, self.task, model = build_model(arguments, dictionary, device)
        self.model = model.to(device=device, dtype=TYPES[precision])
        self.model.prepare_for_inference_(cfg)  # afterwards the model's eval() is fairseq's and returns None
        self.generators = {}
        for beam in BEAMS:
            # Exactly as long as the source, together with min_len below.
            search = argparse.Namespace(beam=beam, max_len_a=1, max_len_b=0)
            self.generators[beam] = self.task.build_generator([self.model], search)

    def __call__(self, batch: Any, beam: int) -> Any:
        self.generators[beam].min_len = batch["net_input"]["src_tokens"].size(1)
        return self.task.inference_step(self.generators[beam], [self.model], batch)


class GraphDecoding:
    """Our models decoded through graphs: compiled ahead of time, or written as ONNX and run by onnxruntime."""

    def __init__(self, arguments: Sequence[str], dictionary: Dictionary, precision: str) -> None:
        model = Decoding(arguments, dictionary, "cpu", "bf16" if precision == "compiled bf16" else "fp32").model
        model.eval()
        if precision.startswith("compiled"):
            graphs: Any = compiled.make_graphs([model], "the model", records.print_progress)
        else:
            with tempfile.TemporaryDirectory() as folder:
                functions = onnx_files.write_graphs([model], "the model", folder, int8=precision == "int8")
                graphs = onnx_files.load([os.path.join(folder, about["file"]) for about in functions.values()])
        self.search = GraphSearch(graphs, eos=dictionary.eos(), vocabulary=len(dictionary))
        self.limits = partial(SearchLimits, length_penalty=1.0, start=dictionary.eos())

    def __call__(self, batch: Any, beam: int) -> Any:
        sources = batch["net_input"]["src_tokens"]
        length = sources.size(1)
        return self.search(sources, self.limits(beam=beam, max_length=length, min_length=length))


class CTranslate2Decoding:
    """Stock fairseq's Transformer, with random weights, decoded by CTranslate2, an inference engine."""

    def __init__(self, arguments: Sequence[str], dictionary: Dictionary, device: str, precision: str) -> None:
        import ctranslate2
        from ctranslate2.converters import FairseqConverter

        self.symbols, self.special = dictionary.symbols, (dictionary.pad(), dictionary.eos())
        cfg, _, model = build_model(arguments, dictionary, "cpu")
        args = cfg.model
        # The converter reads these.
        args.task, args.source_lang, args.target_lang = "translation", "xx", "xx"
        with tempfile.TemporaryDirectory() as folder:
            dictionary.save(os.path.join(folder, "dict.xx.txt"))
            checkpoint, converted = os.path.join(folder, "model.pt"), os.path.join(folder, "converted")
            torch.save({"args": args, "model": model.state_dict()}, checkpoint)
            # Unpickling is safe here: this function wrote the file.
            FairseqConverter(checkpoint, folder, unsafe_deserialization=True).convert(converted)
            compute_type = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}[precision]
            self.translator = ctranslate2.Translator(
                converted,
                device=device,
                compute_type=compute_type,
                inter_threads=1,
                intra_threads=torch.get_num_threads(),
            )

    def __call__(self, batch: Any, beam: int) -> Any:
        sources = batch["net_input"]["src_tokens"]
        sentences = []
        for tokens in sources.tolist():
            sentences.append([self.symbols[token] for token in tokens if token not in self.special])
        length = sources.size(1)
        return self.translator.translate_batch(
            sentences, beam_size=beam, min_decoding_length=length, max_decoding_length=length, max_batch_size=0
        )


if __name__ == "__main__":
    run_step(main)
