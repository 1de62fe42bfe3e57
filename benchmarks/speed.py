"""Speed and memory of every model family compared with stock fairseq's Transformer of equal depth.

Each row is a process of its own. Rows that are compared with the same one are alive together and take turns, round by
round, on the same sentences and batches, through fairseq's own trainer and beam search. Writes the record
``bench_DEVICE_SIZE``.

    python benchmarks/speed.py --size base --rows depth-wise "mute 4" "sdt 6" --precisions fp32 bf16
    python benchmarks/speed.py --rows graphs --parts decoding
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import records
import torch
from fairseq import options as fairseq_options
from fairseq import utils
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.tasks import TASK_REGISTRY
from fairseq.trainer import Trainer

from fairseq_compat import UserError

TRAINING, DECODING = "training", "decoding"

#: Precision -> the type that a model is cast to. Rows may have a precision of their own, in which they decode only.
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}

#: Beams; 4 first, since it is what the papers decode with. Different batches in a turn.
BEAMS, BATCHES = (4, 1), 2

START_METHOD = "spawn"  # of a row's process: a fresh interpreter


# --- rows ---------------------------------------------------------------------------------------------------------


#: Width of layers, width of hidden nets, heads, entries of the joined dictionary.
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
    """A model that is measured.

    Args:
        name, family, layers: of the tables, the names above, and the encoder; decoders have 6.
        extra: options that make the difference to other rows of the family.
        precision: its own; else it is the run's.
        compared: the row that it is compared with; else stock fairseq's of as many layers.
    """

    name: str
    family: str
    layers: int = 6
    extra: tuple[str, ...] = ()
    precision: str = ""
    compared: str = ""

    @property
    def beside(self) -> str:
        pre_norm = " pre-norm" if self.family in ("stock pre-norm", "mute", "sdt") else ""
        return self.compared or f"stock {self.layers}{pre_norm}"

    @property
    def parts(self) -> tuple[str, ...]:
        return (DECODING,) if self.precision or self.family == "ctranslate2" else (TRAINING, DECODING)

    def arguments(self, size: str) -> list[str]:
        """Return fairseq's options of the model, the architecture first."""
        width, hidden, heads, _ = SIZES[size]
        values = {"embed-dim": width, "attention-heads": heads}
        if self.family != "depth-wise":
            values["ffn-embed-dim"] = hidden
        widths = [f"--{side}-{name}={value}" for side in ("encoder", "decoder") for name, value in values.items()]
        widths += [f"--depthwise-hidden-dim={hidden}"] if self.family == "depth-wise" else []
        # Families have dropouts of their own, and rows would not do the same work.
        same = ["--attention-dropout=0", "--activation-dropout=0", f"--encoder-layers={self.layers}"]
        return ["--arch", *FAMILIES[self.family], "--decoder-layers=6", *same, *widths, *self.extra]


def _rows() -> Iterator[Row]:
    yield Row("stock 6", "stock")
    yield Row("depth-wise", "depth-wise")
    open_form = ("--depthwise-forget-bias=2", "--depthwise-gate-gain=0.25", "--depthwise-attention-skip")
    yield Row("depth-wise, open", "depth-wise", extra=open_form)
    yield Row("ctranslate2", "ctranslate2")
    yield Row("ctranslate2, int8", "ctranslate2", precision="int8")
    for layers in (6, 12, 24, 48):
        yield Row(f"stock {layers} pre-norm", "stock pre-norm", layers)
        yield Row(f"sdt {layers}", "sdt", layers)
    for units in (1, 2, 4, 6):
        yield Row(f"mute {units}", "mute", extra=(f"--encoder-units={units}",))
    for precision in ("bf16", "compiled", "compiled bf16", "onnx", "int8"):
        for name, family in (("depth-wise", "depth-wise"), ("mute 4", "mute"), ("sdt 6", "sdt")):
            extra = ("--encoder-units=4",) if family == "mute" else ()
            yield Row(f"{name}, {precision}", family, extra=extra, precision=precision)
    for name, words in {
        "residual": "residual",
        "average": "average",
        "attention": "attention",
        "attention by 3": "attention --encoder-block-size=3",
        "hyper": "hyper",
        "hyper on a manifold": "hyper --hyper-manifold",
        **{f"{one} of sub-layers": f"{one} --connection-unit=sub-layer" for one in ("average", "attention", "hyper")},
        "hyper by permutations": "hyper --hyper-manifold=permutations",
        "hyper by the identity": "hyper --hyper-manifold=identity",
        "value-residual": "value-residual",
        "scaled norms": "residual --norm-scaling",
    }.items():
        connection, *further = words.split()
        both = [f"--{side}-connection={connection}" for side in ("encoder", "decoder")]
        extra = ("--encoder-block-size=0", *both, *further)
        yield Row(f"12 layers, {name}", "sdt", 12, extra, compared="12 layers, residual")


#: Name -> row, in the order of the tables.
ROWS = {row.name: row for row in _rows()}

#: What --rows takes beside names.
CHOICES = {
    "quick": ["depth-wise", "ctranslate2", "mute 1", "mute 4", "sdt 6", "sdt 12", "sdt 24", "sdt 48"],
    "connections": [name for name, row in ROWS.items() if row.compared],
    "graphs": ["depth-wise", "ctranslate2", "mute 4", "sdt 6", *(name for name, row in ROWS.items() if row.precision)],
}


def dictionary_of(size: str) -> Dictionary:
    """Return a dictionary with as many entries as a size has, fairseq's four special ones included."""
    dictionary = Dictionary()
    for number in range(SIZES[size][-1] - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    return dictionary


def corpus(dictionary: Dictionary, sentences: int) -> LanguagePairDataset:
    """Return sentence pairs of random subwords whose lengths are like those of newstest, always the same."""
    chance = random.Random(1)
    generator = torch.Generator().manual_seed(1)
    sources: list[torch.Tensor] = []
    targets: list[torch.Tensor] = []
    for _ in range(sentences):
        length = 25 * chance.lognormvariate(0, 0.5)
        for side, subwords in ((sources, length), (targets, length * chance.lognormvariate(0, 0.15))):
            count = min(80, max(5, round(subwords)))
            tokens = torch.randint(dictionary.nspecial, len(dictionary), (count + 1,), generator=generator)
            tokens[-1] = dictionary.eos()
            side.append(tokens)
    sizes = [[len(tokens) for tokens in side] for side in (sources, targets)]
    return LanguagePairDataset(sources, sizes[0], dictionary, targets, sizes[1], dictionary, shuffle=False)


def batches_of(options: argparse.Namespace, sentences: int = 0) -> list[Any]:
    """Return a turn's batches as fairseq makes them, short sentences to long ones; without a number to train with."""
    # newstest has 3003 sentences; or else enough for every batch to have its own, which have 5 tokens or more.
    dataset = corpus(dictionary_of(options.size), max(3003, BATCHES * (sentences or options.train_tokens // 5)))
    limits = {"max_sentences": sentences} if sentences else {"max_tokens": options.train_tokens}
    groups = dataset.batch_by_size(dataset.ordered_indices(), **limits)
    groups = groups[:-1] or groups  # the last one is what was left over
    chosen = [groups[(2 * place + 1) * len(groups) // (2 * BATCHES)] for place in range(BATCHES)]
    batches = [dataset.collater([dataset[index] for index in group]) for group in chosen]
    return [utils.move_to_cuda(batch) for batch in batches] if options.device == "cuda" else batches


# --- works: called with a batch and a beam ------------------------------------------------------------------------


def configured(arguments: Sequence[str], dictionary: Dictionary, device: str, *further: str) -> tuple[Any, Any, Any]:
    """Return fairseq's configuration of a training run, its task and its model."""
    torch.manual_seed(1)
    given = [
        "no data", "--criterion", "label_smoothed_cross_entropy", "--label-smoothing=0.1", "--dropout=0.1",
        "--share-all-embeddings", "--optimizer=adam", "--adam-betas=(0.9, 0.98)", "--lr=5e-4", "--max-tokens=4096",
        "--lr-scheduler=inverse_sqrt", "--warmup-updates=4000", "--distributed-world-size=1",
        f"--save-dir={tempfile.gettempdir()}/none", *(["--cpu"] if device == "cpu" else []), *further, *arguments,
    ]  # fmt: skip
    parser = fairseq_options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(fairseq_options.parse_args_and_arch(parser, given))
    task = TASK_REGISTRY[cfg.task._name](cfg.task, dictionary, dictionary)
    return cfg, task, task.build_model(cfg.model)


class Training:
    """Training steps through fairseq's Trainer, an update for each batch."""

    def __init__(self, arguments: Sequence[str], dictionary: Dictionary, device: str, precision: str) -> None:
        further = ["--bf16"] if precision == "bf16" else []
        cfg, task, self.model = configured(arguments, dictionary, device, *further)
        self.trainer = Trainer(cfg, task, self.model, task.build_criterion(cfg.criterion))
        self.trainer.cuda_env = None  # else every step ends with a reset of PyTorch's peak of memory
        self.trainer.begin_epoch(1)

    def __call__(self, batch: Any, beam: int = 0) -> None:
        self.trainer.train_step([batch], raise_oom=True)  # or else fairseq warns, and goes on with the next batch


class Decoding:
    """Beam search through fairseq's generator.

    Here and in the searches below every sentence is made exactly as long as its batch's sources are with padding: all
    rows do the same number of steps with as many hypotheses, whatever untrained models think of a sentence's end.
    """

    def __init__(self, arguments: Sequence[str], dictionary: Dictionary, device: str, precision: str) -> None:
        cfg, self.task, model = configured(arguments, dictionary, device)
        self.model = model.to(device=device, dtype=TYPES[precision])
        self.model.prepare_for_inference_(cfg)  # afterwards the model's eval() is fairseq's and returns None
        self.generators = {
            beam: self.task.build_generator([self.model], argparse.Namespace(beam=beam, max_len_a=1, max_len_b=0))
            for beam in BEAMS
        }

    def __call__(self, batch: Any, beam: int) -> Any:
        self.generators[beam].min_len = batch["net_input"]["src_tokens"].size(1)
        return self.task.inference_step(self.generators[beam], [self.model], batch)


class GraphDecoding:
    """Our models decoded through graphs: compiled ahead of time, or written as ONNX and run by onnxruntime."""

    def __init__(self, arguments: Sequence[str], dictionary: Dictionary, kind: str) -> None:
        from fairseq_depthwise.backends import compiled, onnx_files
        from fairseq_depthwise.backends.graph_search import GraphSearch, SearchLimits
        from fairseq_depthwise.backends.onnx_files import write_graphs

        self.model = Decoding(arguments, dictionary, "cpu", "bf16" if kind == "compiled bf16" else "fp32").model
        self.model.eval()
        if kind.startswith("compiled"):
            graphs: Any = compiled.make_graphs([self.model], "the model", records.tell)
        else:
            with tempfile.TemporaryDirectory() as folder:
                functions = write_graphs([self.model], "the model", folder, int8=kind == "int8")
                graphs = onnx_files.load([os.path.join(folder, about["file"]) for about in functions.values()])
        self.search = GraphSearch(graphs, eos=dictionary.eos(), vocabulary=len(dictionary))
        self.limits = lambda beam, length: SearchLimits(beam, 1.0, length, dictionary.eos(), min_length=length)

    def __call__(self, batch: Any, beam: int) -> Any:
        sources = batch["net_input"]["src_tokens"]
        return self.search(sources, self.limits(beam, sources.size(1)))


class CTranslate2Decoding:
    """Stock fairseq's Transformer, with random weights, decoded by CTranslate2, a program that only infers."""

    def __init__(self, arguments: Sequence[str], dictionary: Dictionary, device: str, precision: str) -> None:
        import ctranslate2
        from ctranslate2.converters import FairseqConverter

        self.symbols, self.special = dictionary.symbols, (dictionary.pad(), dictionary.eos())
        cfg, _, self.model = configured(arguments, dictionary, "cpu")
        args = cfg.model
        args.task, args.source_lang, args.target_lang = "translation", "xx", "xx"
        with tempfile.TemporaryDirectory() as folder:
            dictionary.save(os.path.join(folder, "dict.xx.txt"))
            checkpoint, converted = os.path.join(folder, "model.pt"), os.path.join(folder, "converted")
            torch.save({"args": args, "model": self.model.state_dict()}, checkpoint)
            # Read back is what was written a moment ago.
            FairseqConverter(checkpoint, folder, unsafe_deserialization=True).convert(converted)
            kind = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}[precision]
            self.translator = ctranslate2.Translator(
                converted, device=device, compute_type=kind, inter_threads=1, intra_threads=torch.get_num_threads()
            )

    def __call__(self, batch: Any, beam: int) -> Any:
        sources = batch["net_input"]["src_tokens"]
        words = [[self.symbols[token] for token in one if token not in self.special] for one in sources.tolist()]
        length = sources.size(1)
        return self.translator.translate_batch(
            words, beam_size=beam, min_decoding_length=length, max_decoding_length=length, max_batch_size=0
        )


def work_of(row: Row, part: str, precision: str, options: argparse.Namespace) -> Any:
    """Return a row's work; its ``model`` has the parameters."""
    given = ([*row.arguments(options.size), *options.model_overrides], dictionary_of(options.size))
    if row.family == "ctranslate2":
        return CTranslate2Decoding(*given, options.device, precision)
    if precision not in TYPES:
        return GraphDecoding(*given, precision)
    return {TRAINING: Training, DECODING: Decoding}[part](*given, options.device, precision)


# --- in a row's process, to which its peak of memory and a crash belong -------------------------------------------

#: The row's work, and what it depends on.
_HERE: dict[str, Any] = {}


def start(row: Row, part: str, precision: str, options: argparse.Namespace) -> None:
    """Make this process a row's, for training or decoding."""
    os.dup2(2, 1)  # whatever libraries print goes to stderr
    parent: Any = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()  # where that one is killed
    records.prepare_process()
    if row.family in ("depth-wise", "mute", "sdt"):
        import fairseq_depthwise  # noqa: F401  # registers the models; stock runs without it
    before = records.peak_of_process()
    work = work_of(row, part, precision, options)
    _HERE.update(work=work, part=part, precision=precision, options=options, before=before)


def take_turn(beam: int, sentences: int) -> tuple[float, int]:
    """Return the seconds that all batches took one after the other, and their target tokens or sentences."""
    work, options = _HERE["work"], _HERE["options"]
    batches = _HERE.setdefault("batches", {}).get(sentences) or batches_of(options, sentences)
    _HERE["batches"][sentences] = batches
    seconds = records.timed(lambda: [work(batch, beam) for batch in batches], options.device)
    return seconds, sum(int(batch["nsentences" if sentences else "ntokens"]) for batch in batches)


def size_here() -> dict[str, int]:
    """Return parameters, the peak of bytes over what there was before the model, and bytes that stock never reads."""
    model, cuda = _HERE["work"].model, _HERE["options"].device == "cuda"
    # Every encoder layer of stock fairseq registers a second copy of its weights. The weights that it computes with
    # belong to the modules within the layer, only the copies to the layer itself.
    layers = (layer for layer in model.modules() if isinstance(layer, TransformerEncoderLayerBase))
    copies = [parameter for layer in layers for parameter in layer.parameters(recurse=False)]
    # In bf16 a parameter has a float32 twin, to which fairseq gives a gradient of zeros, and so Adam two moments.
    further = 16 if (_HERE["part"], _HERE["precision"]) == (TRAINING, "bf16") else 0
    return {
        "parameters": sum(one.numel() for one in model.parameters()) - sum(one.numel() for one in copies),
        "peak": torch.cuda.max_memory_allocated() if cuda else records.peak_of_process() - _HERE["before"],
        "unused": sum(copy.nbytes + further * copy.numel() for copy in copies),
    }


def measure(
    record: dict[str, Any], options: argparse.Namespace, precision: str, part: str, group: Sequence[Row]
) -> None:
    """Measure a part of the rows that take turns; those that fail are left out from there on."""
    pools: dict[str, ProcessPoolExecutor] = {}

    def ask(row: Row, function: Callable[..., Any], *given: Any) -> Any:
        try:
            return pools[row.name].submit(function, *given).result() if row.name in pools else None
        except (Exception, SystemExit) as error:  # whatever it is, the other rows go on
            pools.pop(row.name).shutdown(wait=False)
            return records.tell(f"{row.name} is left out of {part} {precision}: {type(error).__name__}: {error}")

    for row in group:
        pools[row.name] = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(START_METHOD))
        ask(row, start, row, part, row.precision or precision, options)
        if size := ask(row, size_here):
            about = {"beside": row.beside, "parameters": size["parameters"]}
            record["rows"][row.name] = {**about, "options": row.arguments(options.size)}
    decoding = [(beam, sentences) for beam in BEAMS for sentences in options.decode_batches]
    for beam, sentences in [(0, 0)] if part == TRAINING else decoding:
        turns = {row.name: partial(ask, row, take_turn, beam, sentences) for row in group if row.name in pools}
        answers = records.take_turns(turns, options.rounds) if turns else {}
        rows = {name: dict(zip(("seconds", "amount"), zip(*answers[name], strict=True), strict=True)) for name in pools}
        case = {"part": part, "beam": beam, "sentences": sentences}
        record["meetings"].append({"precision": precision, "case": case, "rows": rows})
        records.tell(f"{case}, {precision}: {', '.join(rows)}")
    for row in group:
        if row.family != "ctranslate2" and (size := ask(row, size_here)):  # that one has converted a model, too
            record["memory"].append({"row": row.name, "part": part, "precision": precision, **size})
    for pool in pools.values():
        pool.shutdown()


def make_parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of all programs that measure models."""
    parser = records.make_parser(doc)
    add = parser.add_argument
    add("--size", choices=SIZES, default="narrow", help="width of all models (default: %(default)s)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="of all models (default: %(default)s)")
    add("--threads", type=records.integer(1), metavar="N", help="on a CPU (default: PyTorch's own choice)")
    add("--train-tokens", type=records.integer(81), metavar="N", help="of a batch (default: 1200, on cuda 16384)")
    add("--rounds", type=records.integer(1), default=5, metavar="N", help="that count (default: %(default)s)")
    add("--model-overrides", type=shlex.split, default=[], metavar="OPTIONS", help="fairseq options for all models,"
        ' like --model-overrides="--decoder-layers 2"')  # fmt: skip
    return parser


def begin(program: str, options: argparse.Namespace, given: Sequence[str]) -> dict[str, Any]:
    """Set the number of threads and what depends on the device, and return a record's setup."""
    cuda = options.device == "cuda"
    if cuda and not torch.cuda.is_available():
        raise UserError("--device cuda: PyTorch finds no GPU here; give cpu")
    if options.threads:
        os.environ["OMP_NUM_THREADS"] = str(options.threads)  # of the rows' processes
        torch.set_num_threads(options.threads)
    options.train_tokens = options.train_tokens or (16384 if cuda else 1200)
    settings = {name: value for name, value in vars(options).items() if name not in ("device", "records", "threads")}
    settings["commit"] = subprocess.check_output(["git", "describe", "--always", "--dirty"], text=True).strip()
    return records.setup_of(program, given, device=options.device, **settings)


def parse_options(given: Sequence[str]) -> argparse.Namespace:
    """Parse the options."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--rows", nargs="+", choices=(*CHOICES, *ROWS), default=["quick"], metavar="ROW",
        help=f"{', '.join(CHOICES)}, or of {'; '.join(ROWS)} (default: quick)")  # fmt: skip
    add("--precisions", nargs="+", choices=TYPES, default=["fp32"], help="(default: fp32)")
    add("--parts", nargs="+", choices=(TRAINING, DECODING), default=[TRAINING, DECODING], help="(default: both)")
    add("--decode-batches", nargs="+", type=records.integer(1), metavar="N", help="sentences translated at once"
        " (default: 1 32, on cuda 1 128)")  # fmt: skip
    add("--name", help="of the record (default: bench_DEVICE_SIZE)")
    return parser.parse_args(given)


def run(options: argparse.Namespace, given: Sequence[str]) -> None:
    """Measure and write the record."""
    options.name = options.name or f"bench_{options.device}_{options.size}"
    options.decode_batches = options.decode_batches or [1, 128 if options.device == "cuda" else 32]
    record: dict[str, Any] = {"setup": begin("speed", options, given), "rows": {}, "meetings": [], "memory": []}
    groups: dict[str, dict[str, Row]] = {}
    for row in (ROWS[row] for choice in options.rows for row in CHOICES.get(choice, [choice])):
        groups.setdefault(row.beside, {row.beside: ROWS[row.beside]})[row.name] = row
    for precision in options.precisions:
        for group in groups.values():
            for part in options.parts:
                measure(record, options, precision, part, [row for row in group.values() if part in row.parts])
                records.write_record(options.records, options.name, record)
    records.finish(options.records, options.name, record)


if __name__ == "__main__":
    sys.exit(records.run_program("speed", parse_options, run, None))
