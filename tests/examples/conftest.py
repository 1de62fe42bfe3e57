"""Make the modules of the quickstart example importable: they are scripts, not a package."""

import sys
from pathlib import Path

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"
sys.path.insert(0, str(QUICKSTART))
