"""``python -m fairseq_depthwise`` is ``fairseq-depthwise``; ``torchrun -m fairseq_depthwise train ...`` needs it."""

import sys

from fairseq_depthwise.cli import main

sys.exit(main())
