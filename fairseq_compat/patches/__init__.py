"""The patches of fairseq, by subject; those of one module of fairseq are applied in this order.

Each is a function with the decorator :func:`fairseq_compat.patching.patch`. Its docstring opens with fairseq's fault,
which ``fairseq-depthwise doctor`` lists; the paragraph after it says what the patch does. Modules of fairseq are typed
``Any``, because they have no type hints to check against.
"""

from fairseq_compat.patches import (  # noqa: F401, I001  # importing registers them
    before_training,
    training,
    texts,
    preprocessing,  # writes what texts reads
    dictionaries,
    pretrained,
    data,
    tasks,
    epochs,
    constraints,
    generation,  # replaces the main of fairseq-interactive, which checkpoints wraps
    checkpoints,
    resuming,
    saving,
    nonautoregressive,
    scoring,
    text_options,  # before all that other patches of main compare
    options,
)
from fairseq_compat.patching import PATCHES as PATCHES
