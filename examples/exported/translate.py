"""Translates with what `fairseq-depthwise export` wrote; needs PyTorch alone.

Lines of tokens in (tokenised, in subwords), lines of tokens out:

    python translate.py EXPORTED < test.bpe.en > test.bpe.de

The folder is looked through before it is loaded (safe_program.py, which lies beside this file): it may be a stranger's.

The search is fairseq's, one sentence at a time. The programs take any number of sentences and rows: sentences of a
batch are padded with <pad> on the left or on the right, and each step may carry the hypotheses of all of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from safe_program import ExportError, load_program, require_plain_file
from torch import Tensor


class ExportedTranslator:
    """An exported model with its dictionaries.

    Raises:
        ExportError: a file of the folder is missing, damaged, or not what fairseq-depthwise export writes.
    """

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        self.config = _config(folder / "config.json")
        self.encoder, self.step = (load_program(folder / f"{name}.pt2").module() for name in _PROGRAMS)
        special = sorted(self.config["symbols"], key=self.config["symbols"].__getitem__)
        source, self.symbols = (special + _entries(folder / f"dict.{side}.txt") for side in ("src", "tgt"))
        for side, symbols in (("source", source), ("target", self.symbols)):
            if len(symbols) != (size := self.config["vocabulary"][side]):
                raise ExportError(f"{folder}: the dictionary of the {side} has {len(symbols)} symbols, not {size}")
        self.numbers = {symbol: number for number, symbol in enumerate(source)}

    def translate(self, line: str, beam: int | None = None, penalty: float | None = None) -> tuple[float, str]:
        """Return the best translation of a line of tokens, and its score: log-probability / length ** penalty."""
        search, unknown = self.config["search"], self.config["symbols"]["<unk>"]
        words = [self.numbers.get(word, unknown) for word in line.split()]
        tokens = self.config["source"]["prefix"] + words + self.config["source"]["suffix"]
        penalty = search["length_penalty"] if penalty is None else penalty
        try:
            hypotheses = self.search(torch.tensor([tokens]), beam or search["beam"], penalty)
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            reason = (str(error) or type(error).__name__).strip().splitlines()[0][:200]
            raise ExportError(f"{len(tokens)} tokens cannot be translated with these programs: {reason}") from error
        score, best = max(hypotheses, key=lambda hypothesis: hypothesis[0])
        target = self.config["target"]
        hidden = {self.config["symbols"]["<s>"], target["start"], *target["prefix"]}
        return score, " ".join(self.symbols[number] for number in best if number not in hidden)

    @torch.no_grad()
    def search(self, source: Tensor, beam: int, penalty: float) -> list[tuple[float, list[int]]]:
        """Return score and tokens, without </s>, of each hypothesis that a beam search finishes.

        Args:
            source: 1 x S.
            beam: k, number of hypotheses.
            penalty: of the length.
        """
        end, pad = self.config["symbols"]["</s>"], self.config["symbols"]["<pad>"]
        prefix, longest = self.config["target"]["prefix"], self.config["search"]["max_length"]
        # 1. Encode once; each of the k rows reads the same sentence.
        keys, values, padding = self.encoder(source)
        cross = [keys.repeat(1, beam, 1, 1, 1), values.repeat(1, beam, 1, 1, 1)]
        padding = padding.repeat(beam, 1)
        own = [torch.zeros_like(part[:, :, :, :1]) for part in cross]  # one slot, which stays empty
        rows = [[self.config["target"]["start"]]] * beam
        scores = torch.zeros(beam)
        finished: list[tuple[float, list[int]]] = []
        for length in range(longest + 1):
            # 2. One step: log-probabilities, k x V.
            log_probs, *own = self.step(torch.tensor([row[-1] for row in rows]), *own, *cross, padding)
            log_probs[:, pad] = -torch.inf
            if length == longest:
                log_probs[:, torch.arange(log_probs.size(1)) != end] = -torch.inf
            elif length < len(prefix):
                log_probs[:, torch.arange(log_probs.size(1)) != prefix[length]] = -torch.inf
            elif length == 0:
                log_probs[:, end] = -torch.inf
            # 3. The best 2k continuations; at first all rows are the same.
            total = log_probs[:1] if length == 0 else log_probs + scores[:, None]
            best, places = total.flatten().topk(min(2 * beam, total.numel() - 1))
            beams, tokens = places // total.size(1), places % total.size(1)
            candidates = list(zip(best.tolist(), beams.tolist(), tokens.tolist(), strict=True))
            for score, row, token in candidates[:beam]:
                if token == end and score > -torch.inf and len(finished) < beam:
                    finished.append((score / (length + 1) ** penalty, rows[row][1:]))
            if len(finished) == beam or length == longest:
                break
            # 4. The k best that go on, with the keys and values of the rows that they continue.
            going_on = [candidate for candidate in candidates if candidate[2] != end][:beam]
            rows = [[*rows[row], token] for _, row, token in going_on]
            scores = torch.tensor([score for score, _, _ in going_on])
            order = torch.tensor([row for _, row, _ in going_on])
            own = [part.index_select(1, order) for part in own]
        return finished


def _config(path: Path) -> dict[str, Any]:
    """Read the configuration, whose values come from whoever made the folder."""
    try:
        config = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{path} is not JSON: {error}") from error

    def value(place: str) -> Any:
        found = config
        for key in place.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        return found

    for place, (least, most) in _NUMBERS.items():
        numbers = value(place)
        for number in numbers if place.endswith("fix") and isinstance(numbers, list) else [numbers]:
            if type(number) is not int or not least <= number <= most:
                raise ExportError(f"{path}: {place} is {str(numbers)[:60]}; whole numbers from {least} to {most} fit")
    penalty = value("search.length_penalty")
    if type(penalty) not in (int, float) or not -100 <= penalty <= 100:
        raise ExportError(f"{path}: search.length_penalty is {str(penalty)[:60]}; a number from -100 to 100 fits")
    for name in _PROGRAMS:
        if (file := value(f"functions.{name}.file")) != f"{name}.pt2":
            raise ExportError(f"{path}: functions.{name}.file is {str(file)[:60]}; {name}.pt2 fits")
    vocabulary, symbols = config["vocabulary"], config["symbols"]
    if sorted(symbols.values()) != [0, 1, 2, 3]:
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
    return [line.rpartition(" ")[0] for line in _text(path).split("\n") if line]


_PROGRAMS = ("encoder", "decoder_step")

#: Place in the configuration -> least and greatest number there.
_NUMBERS = {
    "format": (1, 1),
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
    parser = argparse.ArgumentParser(description="Translate lines of tokens with an exported model.")
    parser.add_argument("folder", help="what fairseq-depthwise export wrote")
    parser.add_argument("--beam", type=int)
    parser.add_argument("--lenpen", type=float)
    parser.add_argument("--scores", action="store_true", help="write the score and a tab before each translation")
    options = parser.parse_args()
    try:
        translator = ExportedTranslator(options.folder)
        for line in sys.stdin:
            score, text = translator.translate(line, options.beam, options.lenpen)
            print(f"{score:.6f}\t{text}" if options.scores else text, flush=True)
    except ExportError as error:
        print(f"translate.py: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
