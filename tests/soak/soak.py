"""Attacks everything that must not lose a file, run code or hang, for half an hour, and counts what came of it.

    python tests/soak/soak.py [--minutes 30] [--jobs 2] [--seed N] [--only "trainings killed"]

Writes ``docs/records/soak.json``; the status is 1 where something ended otherwise than docs/reliability.md promises.
The random number is printed: with ``--seed`` the same attacks come again, as far as they do not depend on time.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import multiprocessing
import os
import random
import secrets
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [
    str(HERE.parents[1] / folder) for folder in ("tests/soak", "tests/support", "benchmarks", "recipes/lib")
]

from attacks import Finding, Outcome, Place  # noqa: E402  # after the path
from forked_python import ForkedPython  # noqa: E402  # as above

#: Group of attacks -> where it is, and its share of the time.
GROUPS = {
    "trainings killed": ("kills:trainings", 10),
    "commands killed": ("kills:commands", 6),
    "ranks killed": ("kills:ranks", 5),
    "clusters killed": ("kills:clusters", 3),
    "full disks": ("kills:full_disks", 3),
    "damaged checkpoints": ("damage:checkpoints_", 2),
    "damaged entries of checkpoints": ("damage:entries", 4),
    "hostile checkpoints": ("damage:hostile_", 2),
    "damaged exports": ("damage:exports", 2),
    "damaged dictionaries, logs and records": ("damage:texts", 2),
    "archives": ("damage:archives", 2),
    "servers": ("server:requests", 3),
}


def run_group(name: str, seconds: float, seed: str) -> list[Finding]:
    """Attack until the time is over, in a process of its own."""
    os.environ["OMP_NUM_THREADS"] = "1"
    module, function = GROUPS[name][0].split(":")
    attack = getattr(importlib.import_module(module), function)
    findings: list[Finding] = []
    parent = os.getppid()
    python = ForkedPython()
    try:
        with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder:
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            end = time.monotonic() + seconds
            attacks = attack(Place(Path(folder), random.Random(f"{seed} {name}"), python))
            with contextlib.closing(attacks):
                for finding in attacks:
                    findings.append(finding)
                    if not finding.outcome.is_promised:
                        print(f"{name}: {finding.kind}: {finding.outcome.value}: {finding.detail}", flush=True)
                    if time.monotonic() > end or os.getppid() != parent:  # which was killed
                        break
    finally:
        python.stop()
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="attacks at a time (default: one a core)")
    parser.add_argument("--seed", default=secrets.token_hex(4))
    parser.add_argument("--only", choices=GROUPS, action="append", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--records", type=Path, default=HERE.parents[1] / "docs" / "records", metavar="FOLDER")
    options = parser.parse_args()
    names = options.only or list(GROUPS)
    whole = sum(GROUPS[name][1] for name in names)
    print(f"--seed {options.seed}, {options.minutes:g} minutes", flush=True)
    counts: dict[str, dict[str, int]] = {}
    kinds: dict[str, list[str]] = {}
    begin = time.monotonic()
    with ProcessPoolExecutor(
        options.jobs, mp_context=multiprocessing.get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        tasks = {
            name: pool.submit(
                run_group, name, GROUPS[name][1] / whole * options.jobs * options.minutes * 60, options.seed
            )
            for name in names
        }
        for name, task in tasks.items():
            try:
                findings = task.result()
            except Exception as error:  # of the attack itself; the others' findings are not lost
                findings = [Finding("the attack", Outcome.SURPRISED, repr(error))]
                print(f"{name}: {error!r}", flush=True)
            counts[name] = dict(Counter(finding.outcome.value for finding in findings))
            kinds[name] = sorted({finding.kind for finding in findings})
    from records import finish, setup_of  # imports PyTorch

    words = f"--seed {options.seed} --minutes {options.minutes:g}"
    setup = {**setup_of("soak", []), "command": f"python tests/soak/soak.py {words}"}
    setup["minutes"] = round((time.monotonic() - begin) / 60, 1)
    record = {"setup": setup, "outcomes": [outcome.value for outcome in Outcome], "counts": counts, "kinds": kinds}
    finish(options.records, "soak", record)
    return int(any(not Outcome(outcome).is_promised for found in counts.values() for outcome in found))


if __name__ == "__main__":
    sys.exit(main())
