"""Make the modules of the grammar importable: they are scripts, not a package."""

import sys
from pathlib import Path

GRAMMAR = Path(__file__).parents[2] / "examples" / "grammar"
sys.path.insert(0, str(GRAMMAR))
