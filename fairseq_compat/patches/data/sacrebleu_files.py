"""``fairseq-score --sacrebleu`` stops with ``TypeError``: it hands open files to sacreBLEU, which wants lists of lines.

sacreBLEU 2 no longer takes files. While the command runs, and only with that option, its one call is given the lines.
"""

import functools
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def adjust(module: Any) -> Iterator[None]:
    yield

    original = module.cli_main

    @functools.wraps(original)
    def cli_main() -> None:
        if "--sacrebleu" not in sys.argv:
            original()
            return
        import sacrebleu

        corpus_bleu = sacrebleu.corpus_bleu

        def bleu_of_lines(system: Iterable[str], references: Sequence[Iterable[str]], **options: Any) -> Any:
            lines = [[line.rstrip("\n") for line in text] for text in (system, *references)]
            return corpus_bleu(lines[0], lines[1:], **options)

        sacrebleu.corpus_bleu = bleu_of_lines  # type: ignore[assignment]  # of another signature
        try:
            original()
        finally:
            sacrebleu.corpus_bleu = corpus_bleu

    module.cli_main = cli_main
