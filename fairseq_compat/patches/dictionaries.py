"""Patches for dictionaries, subwords and pretrained embeddings.

The first paragraph of each docstring is the fault in fairseq, as ``doctor`` prints it; what follows says what the patch
does ("Here ...").
"""

from __future__ import annotations

import io
import logging
import os
from typing import Any

from fairseq_compat.checkpoints import EMBEDDING_OPTIONS
from fairseq_compat.errors import UserError
from fairseq_compat.files import require_file
from fairseq_compat.patching import as_configuration, patch
from fairseq_compat.text import TextFile, joined_pieces, one_line

logger = logging.getLogger(__name__)

#: Ends a line of a dictionary file whose symbol the dictionary already has, such as ``<s>`` in the dictionary of a
#: pretrained model: the symbol gets a second number, which replaces the first when texts are encoded.
OVERWRITE = " #fairseq:overwrite"

#: Unicode's private use area; one of its characters stands for SentencePiece's unknown piece during decoding.
_PRIVATE_CHARACTERS = tuple(map(chr, range(0xE000, 0xF900)))


@patch("fairseq.data.dictionary", function="Dictionary.add_from_file")
def name_file_in_dictionary_errors(original: Any, self: Any, f: Any) -> None:
    """Errors in a dictionary do not name its file, its lines also end at carriage returns, and a pipe is waited for.

    Here only a regular file is read, with the line ends of every text, and an error names the file and quotes the line.
    A byte order mark at the beginning stays part of the first symbol, since models may have been trained with it:
    without it the dictionary would be another one. ``fairseq-preprocess`` refuses to make new data with such a file.
    """
    from fairseq.file_io import PathManager

    if isinstance(f, str):
        require_file(f)
        with TextFile(PathManager.get_local_path(f), marked=False) as file:
            self.add_from_file(file)  # calls this function with the open file
        return
    path = getattr(f, "name", "the dictionary")
    lines = f.readlines()
    first = self._load_meta(lines)  # subclasses may have lines of their own before the symbols
    for number, line in enumerate(lines[first:], start=first + 1):
        entry = line.rstrip()
        is_overwritten = entry.endswith(OVERWRITE)
        symbol, space, count = entry.removesuffix(OVERWRITE).rpartition(" ")
        # fairseq also reads a count below 0.
        if not space or not count.removeprefix("-").isdecimal():
            problem = f"{path} is not a dictionary: line {number} is {entry[:100]!r}"
            raise UserError(f"{problem}; each line must be a symbol, a space and a count")
        if symbol in self and not is_overwritten:
            problem = f"{path} has {symbol!r} in line {number}, but the dictionary already has it"
            raise UserError(f"{problem}; remove that line, or end it with{OVERWRITE}")
        self.add_symbol(symbol, n=int(count), overwrite=is_overwritten)


@patch("fairseq.data.dictionary", function="Dictionary.save")
def mark_repeated_symbols(original: Any, self: Any, f: Any) -> None:
    """A dictionary with ``#fairseq:overwrite`` is written without the mark, and no command can read the result.

    Here each repeated symbol is marked, and gets the same number when it is read.
    """
    names, values = self._get_meta()  # what subclasses write before the symbols
    entries = list(zip(names, values, strict=True))
    earlier = set(self.symbols[: self.nspecial])  # <s>, <pad>, </s> and <unk>, which are not written
    counted = zip(self.symbols[self.nspecial :], self.count[self.nspecial :], strict=True)
    for symbol, count in counted:
        entries.append((symbol, f"{count}{OVERWRITE}" if symbol in earlier else count))
        earlier.add(symbol)
    self._save(f, entries)


@patch("fairseq.data.encoders.subword_nmt_bpe", function="SubwordNMTBPE.__init__")
def read_subword_codes_as_utf8(original: Any, self: Any, cfg: Any) -> None:
    """``--bpe subword_nmt`` reads its codes in the encoding of the locale, and misreads them if that is not UTF-8.

    Words with non-ASCII letters are then silently split differently than in training. Codes of fastBPE crash it.
    Here the codes are read as UTF-8, the encoding in which subword-nmt writes them, and other files are refused.
    """
    from fairseq.file_utils import cached_path
    from subword_nmt.apply_bpe import BPE

    if cfg.bpe_codes is None:
        original(self, cfg)  # raises an error that names the missing option
        return

    with TextFile(cached_path(cfg.bpe_codes)) as file:
        lines = file.readlines()
    for number, line in enumerate(lines, start=1):
        fields = line.strip("\r\n ").split(" ")
        is_version = number == 1 and line.startswith("#version:")  # which subword-nmt writes since 0.2
        if len(fields) != 2 and not is_version:
            raise UserError(
                f"--bpe-codes {cfg.bpe_codes} has {len(fields)} fields in line {number}, {line.strip()[:100]!r}; codes "
                "of subword-nmt have two, and those of fastBPE, with a count, go with --bpe fastbpe"
            )
    # What fairseq's constructor sets, too.
    self.bpe = BPE(io.StringIO("".join(lines)), separator=cfg.bpe_separator)
    self.bpe_symbol = f"{cfg.bpe_separator} "


@patch("fairseq.data.encoders.sentencepiece_bpe", function="SentencepieceBPE.__init__")
def require_sentencepiece_model(original: Any, self: Any, cfg: Any) -> None:
    """A ``--sentencepiece-model`` that is another file ends in ``could not parse ModelProto``.

    Here the error names the option.
    """
    try:
        original(self, cfg)
    except RuntimeError as error:
        path = cfg.sentencepiece_model
        raise UserError(f"--sentencepiece-model {path} is not a model of SentencePiece: {error}") from error


@patch("fairseq.data.encoders.sentencepiece_bpe", function="SentencepieceBPE.decode")
def decode_sentencepiece_bytes(original: Any, self: Any, x: str) -> str:
    """With a SentencePiece model that has byte fallback, translations contain ``<0xC3><0x9F>`` instead of ``ß``.

    Here the model decodes its pieces. Unknown pieces, and tokens that it does not have, such as language tokens, are
    left unchanged.
    """
    unknown = self.sp.IdToPiece(self.sp.unk_id())
    placeholder = next(character for character in _PRIVATE_CHARACTERS if character not in x)
    pieces = []
    for piece in x.split():
        # The model would decode its unknown piece as " ⁇ ", which is not the dictionary's symbol; a character that
        # occurs nowhere else takes its place meanwhile.
        pieces.append(placeholder if piece == unknown else piece)
    text = self.sp.DecodePieces(pieces)
    # In pieces that the model does not know, it leaves the mark of a word's beginning (U+2581).
    text = text.replace("\u2581", " ").replace(placeholder, unknown)
    return one_line(text).strip()


@patch("fairseq.data.data_utils", function="post_process")
def join_byte_pieces(original: Any, sentence: str, symbol: str) -> Any:
    """With byte fallback, ``--post-process sentencepiece`` leaves bytes such as ``<0xC3>`` in place of letters.

    Here they are decoded.
    """
    return joined_pieces(sentence) if symbol == "sentencepiece" else original(sentence, symbol)


@patch("fairseq.utils", function="parse_embedding")
def read_embedding_file(original: Any, embed_path: str) -> dict[str, Any]:
    """Without a header, the first word of an embedding file is lost; errors do not name the file.

    Here a first line with two fields is the header. The header, or the first word, determines how many numbers each
    word has, so that a word may contain spaces.
    """
    import torch

    embeddings: dict[str, Any] = {}
    width = 0  # how many numbers each word has
    with TextFile(embed_path) as file:
        for number, line in enumerate(file, start=1):
            fields = line.rstrip().split(" ")
            try:
                if number == 1:
                    is_header = len(fields) == 2  # the number of words, and the width
                    width = int(fields[1]) if is_header else len(fields) - 1
                    if is_header:
                        continue
                if len(fields) <= width or width < 1:
                    raise ValueError(f"fields: {len(fields)}")
                # A word may contain spaces; its numbers are the last fields.
                values = [float(value) for value in fields[-width:]]
            except ValueError as error:
                raise UserError(
                    f"{embed_path} is not a file of embeddings: line {number} must be a word and {width or 'its'} "
                    f"numbers, each after a space ({error})"
                ) from None
            embeddings[" ".join(fields[:-width])] = torch.tensor(values)
    return embeddings


@patch("fairseq_cli.train", function="main")
def resume_without_embedding_file(original: Any, cfg: Any, *args: Any, **kwargs: Any) -> Any:
    """A resumed training reads its pretrained embeddings again, and stops if the file is gone.

    Here it resumes without the file, since the checkpoint has the trained embeddings.
    """
    cfg = as_configuration(cfg)
    options = cfg.checkpoint
    # As fairseq does: the default name is looked for in --save-dir; any other is a path.
    is_default = options.restore_file == "checkpoint_last.pt"
    restored = os.path.join(options.save_dir, "checkpoint_last.pt") if is_default else options.restore_file
    checkpoints = [restored, options.continue_once, options.finetune_from_model]
    # If there is none, the training starts with the embeddings, and fairseq reports that they are missing.
    if any(path and os.path.isfile(path) for path in checkpoints):
        for name in EMBEDDING_OPTIONS:
            path = getattr(cfg.model, name, None)
            if path and not os.path.exists(path):
                logger.info("--%s %s does not exist, and is not needed", name.replace("_", "-"), path)
                setattr(cfg.model, name, None)
    return original(cfg, *args, **kwargs)
