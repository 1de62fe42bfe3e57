"""Translates with a folder of `fairseq-depthwise export`; needs onnxruntime and NumPy alone.

Lines of tokens in (tokenized, in subwords), lines of tokens out:

    python translate_onnx.py EXPORTED < test.bpe.en > test.bpe.de

The beam search is fairseq's, one sentence at a time. The graphs take any number of sentences: those of a batch are
padded with <pad> on the left or on the right.

A file in ONNX is data: no code in it is run, and it is refused if it has other operators than export writes.
safe_onnx.py, which looks through it, is found in this repository, or may be copied beside this file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

sys.path.append(str(Path(__file__).resolve().parent / "../../fairseq_depthwise/backends/standalone"))
from safe_onnx import require_plain_operators  # the folder is on the path by the line above

#: A graph: arrays in, arrays out.
Graph = Callable[..., Sequence[Any]]

#: Names of the graphs, in the configuration and as files.
GRAPHS = ("encoder", "decoder_step")

#: Target positions that are allocated at a time.
CAPACITY = 16


class ExportError(ValueError):
    """A file cannot be used; the message is one sentence that says which, and why."""


class ExportedTranslator:
    """An exported model with its dictionaries.

    Args:
        folder: that was exported.
        threads: of each matrix product.

    Raises:
        ExportError: a file of the folder is missing, damaged, of another export, or not what fairseq-depthwise export
            writes.
    """

    def __init__(self, folder: str | Path, threads: int = 1) -> None:
        folder = Path(folder)
        self.config = _config(folder / "config.json")
        for name in GRAPHS:
            require_plain_file(folder / f"{name}.onnx")
            digest = hashlib.sha256((folder / f"{name}.onnx").read_bytes()).hexdigest()
            # Older exports have no digests.
            if digest != self.config["functions"][name].get("sha256", digest):
                raise ExportError(f"{folder / name}.onnx is not the one that config.json belongs to; export again")
        self.encode, self.step = (load_graph(folder / f"{name}.onnx", threads) for name in GRAPHS)
        special = sorted(self.config["symbols"], key=self.config["symbols"].__getitem__)
        source, self.symbols = (special + _entries(folder / f"dict.{side}.txt") for side in ("src", "tgt"))
        for side, symbols in (("source", source), ("target", self.symbols)):
            if len(symbols) != (size := self.config["vocabulary"][side]):
                raise ExportError(f"{folder}: the dictionary of the {side} has {len(symbols)} symbols, not {size}")
            record = self.config.get("belongs_to", {}).get(f"{side}_dictionary")
            digest = hashlib.sha256("\n".join(symbols).encode()).hexdigest()[:16]
            if record not in (None, f"sha256:{digest} of {size} symbols"):
                raise ExportError(f"{folder}: the dictionary of the {side} is not that of the model; export again")
        self.numbers = {symbol: number for number, symbol in enumerate(source)}

    def translate(self, line: str, beam: int | None = None, penalty: float | None = None) -> tuple[float, str]:
        """Return the best translation of a line of tokens, and its score: log-probability / length ** penalty."""
        search, unknown = self.config["search"], self.config["symbols"]["<unk>"]
        words = [self.numbers.get(word, unknown) for word in line.split()]
        tokens = self.config["source"]["prefix"] + words + self.config["source"]["suffix"]
        penalty = search["length_penalty"] if penalty is None else penalty
        try:
            hypotheses = self.search(tokens, beam or search["beam"], penalty)
        except ExportError:
            raise
        except Exception as error:  # of whatever kind the program that runs the graphs has
            reason = (str(error) or type(error).__name__).strip().splitlines()[0][:200]
            raise ExportError(f"{len(tokens)} tokens cannot be translated with these programs: {reason}") from error
        score, best = max(hypotheses, key=lambda hypothesis: hypothesis[0])
        target = self.config["target"]
        hidden = {self.config["symbols"]["<s>"], target["start"], *target["prefix"]}
        return score, " ".join(self.symbols[number] for number in best if number not in hidden)

    def search(self, source: Sequence[int], beam: int, penalty: float) -> list[tuple[float, list[int]]]:
        """Return score and tokens, without </s>, of each hypothesis that a beam search finishes.

        Args:
            source: tokens of the sentence.
            beam: k, number of hypotheses.
            penalty: of the length.
        """
        end, size = self.config["symbols"]["</s>"], self.config["vocabulary"]["target"]
        prefix, longest = self.config["target"]["prefix"], self.config["search"]["max_length"]
        # 1. Encode once. Of each layer: own keys and values, empty at first, and those of the encoder's output.
        padding, *cross = self.encode(np.array([source], dtype=np.int64))
        state = []
        for keys, values in zip(cross[::2], cross[1::2], strict=True):
            empty = np.zeros((1, keys.shape[1], CAPACITY, beam, keys.shape[3]), keys.dtype)
            state += [empty, empty.copy(), keys, values]
        ancestors = np.full((1, beam, CAPACITY), -1, dtype=np.int64)
        rows: list[list[int]] = [[]] * beam
        tokens, origins = [self.config["target"]["start"]] * beam, list(range(beam))
        scores = [0.0] + [-np.inf] * (beam - 1)  # at first all are the same, and count as one
        finished: list[tuple[float, list[int]]] = []
        for length in range(longest + 1):
            if length == ancestors.shape[2]:
                more = ((0, 0), (0, 0), (0, CAPACITY))
                ancestors = np.pad(ancestors, more, constant_values=-1)
                for place in range(0, len(state), 4):
                    state[place] = np.pad(state[place], (*more, (0, 0), (0, 0)))
                    state[place + 1] = np.pad(state[place + 1], (*more, (0, 0), (0, 0)))
            # 2. One step: the 2k best continuations.
            forced = -1
            if length == longest:
                forced = end
            elif length < len(prefix):
                forced = prefix[length]
            numbers = (np.array([number], dtype=np.int64) for number in (length, forced, 1))
            best, places, ancestors, *written = self.step(
                np.array([tokens], dtype=np.int64),
                np.array([origins], dtype=np.int64),
                np.array([scores], dtype=np.float32),
                ancestors,
                *numbers,
                padding,
                *state,
            )
            for place, newest in enumerate(written):
                state[place // 2 * 4 + place % 2][:, :, length] = newest
            pairs = (divmod(place, size) for place in places[0].tolist())
            candidates = [(score, *pair) for score, pair in zip(best[0].tolist(), pairs, strict=True)]
            # 3. What ends and is among the k best is finished.
            for score, row, token in candidates[:beam]:
                if token == end and score > -np.inf and len(finished) < beam:
                    finished.append((score / (length + 1) ** penalty, rows[row]))
            if len(finished) == beam:
                break
            # 4. The k best that are continued.
            going_on = [candidate for candidate in candidates if candidate[2] != end][:beam]
            going_on += [(-np.inf, 0, end)] * (beam - len(going_on))
            rows = [[*rows[row], token] for _, row, token in going_on]
            scores, origins, tokens = (list(column) for column in zip(*going_on, strict=True))
        return finished


def load_graph(path: Path, threads: int) -> Graph:
    """Return a graph as a function of arrays."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Without it the int8 products of a CPU with AVX2 or AVX-512, but without VNNI, overflow.
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        require_plain_operators(path)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class for each reason, and none for all
        raise ExportError(f"{path} is damaged, or is nothing that onnxruntime can load: {error}") from error
    names = [entry.name for entry in session.get_inputs()]

    def graph(*arrays: Any) -> list[Any]:
        outputs: list[Any] = session.run(None, dict(zip(names, arrays, strict=True)))
        return outputs

    return graph


def require_plain_file(path: Path) -> None:
    """Raise :class:`ExportError` unless there is a file itself, and no link to one elsewhere."""
    if path.is_symlink() or not path.is_file():
        raise ExportError(f"{path} is missing, or is no file; give a folder that fairseq-depthwise export wrote")


def _config(path: Path) -> dict[str, Any]:
    """Read the configuration, whose values come from whoever made the folder."""
    try:
        config = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{path} is not JSON: {error}") from error

    def value(place: str) -> Any:
        inner = config
        for key in place.split("."):
            inner = inner.get(key) if isinstance(inner, dict) else None
        return inner

    for place, (least, most) in _NUMBERS.items():
        numbers = value(place)
        for number in numbers if place.endswith("fix") and isinstance(numbers, list) else [numbers]:
            if type(number) is not int or not least <= number <= most:
                raise ExportError(f"{path}: {place} is {str(numbers)[:60]}; whole numbers from {least} to {most} fit")
    penalty = value("search.length_penalty")
    if type(penalty) not in (int, float) or not -100 <= penalty <= 100:
        raise ExportError(f"{path}: search.length_penalty is {str(penalty)[:60]}; a number from -100 to 100 fits")
    for name in GRAPHS:
        if (file := value(f"functions.{name}.file")) != f"{name}.onnx":
            raise ExportError(f"{path}: functions.{name}.file is {str(file)[:60]}; {name}.onnx fits")
    vocabulary, symbols = config["vocabulary"], config["symbols"]
    if len(symbols) != 4 or sorted(symbols.values()) != [0, 1, 2, 3]:
        raise ExportError(f"{path}: symbols is {str(symbols)[:60]}; the numbers from 0 to 3 fit")
    target = [value("target.start"), *value("target.prefix")]
    source = [*value("source.prefix"), *value("source.suffix")]
    for numbers, side in ((source, "source"), (target, "target")):
        if max(numbers, default=0) >= vocabulary[side]:
            raise ExportError(f"{path}: {side} has token {max(numbers)}, and its vocabulary {vocabulary[side]} symbols")
    return dict(config)


def _text(path: Path) -> str:
    require_plain_file(path)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ExportError(f"{path} cannot be read: {error}") from error


def _entries(path: Path) -> list[str]:
    """Return the symbols of a dictionary, in order."""
    symbols = []
    for line in filter(None, _text(path).split("\n")):
        symbol, _, _ = line.removesuffix(" #fairseq:overwrite").rpartition(" ")  # the mark of one that was there before
        symbols.append(symbol)
    return symbols


#: Place in the configuration -> least and greatest number there.
_NUMBERS = {
    "format": (2, 2),
    "vocabulary.source": (4, 2**31),
    "vocabulary.target": (4, 2**31),
    **{f"symbols.{name}": (0, 3) for name in ("<s>", "<pad>", "</s>", "<unk>")},
    "source.prefix": (0, 2**31),
    "source.suffix": (0, 2**31),
    "target.start": (0, 2**31),
    "target.prefix": (0, 2**31),
    "search.beam": (1, 1000),
    "search.max_length": (1, 100_000),
}


def main() -> int:
    """Translate standard input with the folder that the command line names."""
    parser = argparse.ArgumentParser(description="Translate lines of tokens with an exported model.")
    parser.add_argument("folder", help="what fairseq-depthwise export wrote")
    parser.add_argument("--beam", type=int)
    parser.add_argument("--lenpen", type=float)
    parser.add_argument("--threads", type=int, default=1, help="of each matrix product; wide models gain from more")
    parser.add_argument("--scores", action="store_true", help="write the score and a tab before each translation")
    options = parser.parse_args()
    if options.threads < 1:
        parser.error(f"argument --threads: {options.threads}; 1 or more fit")
    try:
        translator = ExportedTranslator(options.folder, options.threads)
        for line in sys.stdin:
            score, text = translator.translate(line, options.beam, options.lenpen)
            print(f"{score:.6f}\t{text}" if options.scores else text, flush=True)
    except (ExportError, UnicodeDecodeError) as error:
        print(f"translate_onnx.py: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
