"""``python -m fairseq_depthwise`` is ``fairseq-depthwise``; ``torchrun -m fairseq_depthwise train ...`` needs it."""

import os
import sys

if os.environ.get("PYTHONSAFEPATH") and not hasattr(sys.flags, "safe_path"):
    del sys.path[0]  # the current folder: Python 3.10 does not know the variable

from fairseq_depthwise.cli import main  # found without the current folder

sys.exit(main())
