"""Attacks what must not lose a file, run code or hang, for half an hour, and counts what came of it.

    python tests/soak/soak.py [--minutes 30] [--seed 1] [--only requests]

Writes ``docs/records/soak.json``; the status is 1 where something ended otherwise than docs/reliability.md promises.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parents[1] / folder) for folder in ("tests/support", "benchmarks"))]

#: How an attack can end; the first four are as promised.
EQUAL, REFUSED, UNEXPECTED, HARMLESS = PROMISED = (
    "goes on as if nothing had been", "refused in a sentence", "unexpected error in a sentence", "without effect",
)  # fmt: skip
DIFFERENT, LOST, EXECUTED, HUNG = BROKEN = ("another result", "lost a file", "ran code", "hung")

#: Kind of an attack, how it ended, and what a person needs to see it again.
Finding = tuple[str, str, str]
Attack = Callable[[Path, random.Random], Iterator[Finding]]


def groups() -> dict[str, tuple[Attack, int]]:
    """Return the attacks by name, each with its share of the time."""
    import damage
    import kills

    return {
        "trainings killed or without room": (kills.trainings, 12),
        "commands killed or without room": (kills.commands, 10),
        "damaged files": (damage.files, 6),
        "requests": (damage.requests, 3),
    }


def run_group(name: str, seconds: float, seed: int) -> list[Finding]:
    """Attack until the time is over, in a process of its own."""
    os.environ["OMP_NUM_THREADS"] = "1"
    end, parent = time.monotonic() + seconds, os.getppid()
    findings: list[Finding] = []
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        for finding in groups()[name][0](Path(folder), random.Random(f"{seed} {name}")):
            findings.append(finding)
            if finding[1] in BROKEN:
                print(f"{name}: {': '.join(finding)}", flush=True)
            if time.monotonic() > end or os.getppid() != parent:  # which was killed
                break
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="attacks at a time (default: one a core)")
    parser.add_argument("--seed", type=int, default=1, help="other attacks with another")
    parser.add_argument("--only", choices=groups(), action="append", metavar="GROUP", help=", ".join(groups()))
    parser.add_argument("--records", type=Path, default=HERE.parents[1] / "docs" / "records", metavar="FOLDER")
    options = parser.parse_args()
    shares = {name: share for name, (_, share) in groups().items() if name in (options.only or groups())}
    second = options.minutes * 60 * options.jobs / sum(shares.values())
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        tasks = {name: pool.submit(run_group, name, share * second, options.seed) for name, share in shares.items()}
        found = {name: task.result() for name, task in tasks.items()}
    from records import describe_setup, write_and_print

    setup = describe_setup("soak", []) | {"command": f"python tests/soak/soak.py --minutes {options.minutes:g}"}
    counts = {name: dict(Counter(outcome for _, outcome, _ in findings)) for name, findings in found.items()}
    kinds = {name: sorted({kind for kind, *_ in findings}) for name, findings in found.items()}
    write_and_print(
        options.records, "soak", {"setup": setup, "outcomes": [*PROMISED, *BROKEN], "counts": counts, "kinds": kinds}
    )
    return int(any(outcome in BROKEN for outcomes in counts.values() for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
