"""What shallow-to-deep training saves: time beside a model that is deep from the start, and what a growth step costs.

Part "saving" trains the paper's schedule and the deep model in small and compares what is saved with what the steps at
each depth predict. Part "projection" measures steps at the paper's width. Part "step" grows a model as large as the
paper's. Part "time-to-loss" asks when each of several schedules reaches the deep model's last validation loss.
Every command is printed before it runs; a run that was stopped goes on with the same command.

    python benchmarks/growth.py --corpus "$CORPORA/tatoeba-deen"
    python benchmarks/growth.py --corpus "$CORPORA/tatoeba-deen" --parts saving --rounds 5
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from growth_options import LOSS, PARTS, PROJECTION, SAVING, SETTINGS, STEP, TEXT, made_by, parse_options
from growth_page import page
from growth_projection import measure_projection, side_of
from growth_schedules import BLOCKS
from growth_trainings import measure_loss, measure_saving, measure_step
from page_sections import write_section
from results import about, find_languages, prepare, text_sizes, write
from results_commands import Workplace, tell
from side_by_side import dictionary_of, parameter_count

from fairseq_compat import UserError
from fairseq_compat.explanations import explain

#: The section of the page that this program writes.
SECTION = "growth"

#: The text of the part "step": few sentences, with a dictionary as large as the paper's.
LARGE_DICTIONARY = (
    "fairseq-preprocess --source-lang {} --target-lang {} --joined-dictionary --padding-factor {} "
    "--trainpref valid.bpe --validpref valid.bpe --destdir data-bin-large"
)


class Benchmark:
    """The measurements of a work folder.

    Args:
        options: see ``growth_options``.

    Raises:
        UserError: the corpus or the folder cannot be used.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.languages = find_languages(options.corpus, options.source)
        self.place = Workplace(options.work, options.corpus, options.threads)
        self.settings = {
            **vars(options),
            "corpus": options.corpus.resolve().name,
            "languages": " -> ".join(self.languages),
        }

    def run(self, part: str) -> None:
        """Measure a part and, after each piece of it, write its numbers and the page's section.

        Raises:
            UserError: the folder holds numbers of other settings, or a command failed.
        """
        settings = {name: self.settings[name] for name in SETTINGS[part]}
        about = self.about()
        self.place.only_for(part, {**settings, **about})
        known = {"settings": settings, "about": about, "made_by": made_by(part, self.options)}
        for numbers in self.measure(part):
            write(self.path(part), json.dumps({**known, **numbers}, indent=1))
            write_section(self.options.output, SECTION, page({name: self.stored(name) for name in PARTS}))
        tell(f"{part}: {self.options.output} is written")

    def measure(self, part: str) -> Iterator[dict[str, Any]]:
        """What has been measured of a part so far, again and again until it is complete."""
        if part == PROJECTION:
            yield from measure_projection(self.options, self.stored(part))
            return
        text = self.prepare()
        if part == STEP:
            command = LARGE_DICTIONARY.format(*self.languages, self.options.vocabulary)
            self.place.run(command)
            text["prepared"].append(command)
            # Both the model that grows and the text of this part have this dictionary.
            text["text"]["dictionary"] = self.options.vocabulary
            text["parameters"] = self.parameters()
            found = measure_step(self.place, self.options, "data-bin-large")
        else:
            found = {SAVING: measure_saving, LOSS: measure_loss}[part](self.place, self.options)
        for numbers in found:
            yield {**text, **numbers}

    def prepare(self) -> dict[str, Any]:
        """The text, made unless it is there: the commands, and its sizes."""
        merges = self.options.merges
        self.place.only_for("data", {name: self.settings[name] for name in TEXT})
        commands = prepare(self.place, self.options.corpus, self.languages, merges)
        return {"prepared": commands, "text": text_sizes(self.place.folder, self.languages)}

    def parameters(self) -> int:
        """Parameters of the deepest model of the paper's width."""
        layers = BLOCKS * self.options.base_block_size
        return parameter_count(side_of(self.options, layers), dictionary_of(self.options.vocabulary))

    def stored(self, part: str) -> Mapping[str, Any]:
        """The numbers of a part; empty if it has not been measured."""
        path = self.path(part)
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def about(self) -> dict[str, str]:
        """What the measurements are made with."""
        known = about()
        accelerator = f", {torch.cuda.get_device_name()}" if self.options.device == "cuda" else ""
        return {**known, "machine": known["machine"] + accelerator}

    def path(self, part: str) -> Path:
        """The file of a part's numbers."""
        return self.place.folder / f"{part}.json"


def main(arguments: list[str] | None = None) -> int:
    options = parse_options((__doc__ or "").splitlines()[0], arguments)
    try:
        benchmark = Benchmark(options)
        for part in options.parts:
            benchmark.run(part)
    except (UserError, OSError) as error:
        tell(f"growth: error: {explain(error) or error}")
        return 1
    except KeyboardInterrupt:
        tell("growth: stopped; the same command goes on from here")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
