"""Deep and wide Transformers for translation: a fairseq plugin (``--user-dir fairseq_depthwise``).

Importing this package registers, under their names on fairseq's command line:

- architectures: ``depthwise_lstm_transformer``, ``mute_transformer``, ``sdt_transformer`` and their presets, and
  ``linearized_transformer``;
- criterions: ``label_smoothed_cross_entropy_with_auxiliary``, ``linearization_probe``;
- learning rate schedules: ``inverse_sqrt_restart``;
- optimizers: ``fused_adam``;
- tokenizers: ``moses_normalized``;
- tasks: ``translation_layer_growth``, ``translation_multi_simple_epoch_layer_growth``.

Programs import the models from here: ``DepthwiseLSTMTransformer``, ``MuteTransformer`` and ``SDTTransformer``.
"""

import os
import sys
from typing import TYPE_CHECKING

import fairseq_compat
from fairseq_compat.versions import fairseq_problem

__version__ = "0.1.0"

fairseq_compat.install()  # for folders that Python reads no start-up hooks from (pip install --target)

if __name__ != "fairseq_depthwise":
    raise fairseq_compat.UserError(
        f"--user-dir leads to a folder that is imported as {__name__!r}; its modules know each other as "
        "fairseq_depthwise, so give a folder of that name"
    )

#: ``fairseq-depthwise [SUBCOMMAND] --help`` needs nothing of PyTorch and is there at once.
_is_help = (
    os.path.basename(sys.argv[0]) == "fairseq-depthwise" and len(sys.argv) <= 3 and sys.argv[-1] in ("-h", "--help")
)

_problem = fairseq_problem()
if TYPE_CHECKING or (_problem is None and not _is_help):
    from fairseq_depthwise import criterions as criterions
    from fairseq_depthwise import models as models
    from fairseq_depthwise import optim as optim
    from fairseq_depthwise import tasks as tasks
    from fairseq_depthwise.models.depthwise_lstm.model import DepthwiseLSTMTransformer as DepthwiseLSTMTransformer
    from fairseq_depthwise.models.mute.model import MuteTransformer as MuteTransformer
    from fairseq_depthwise.models.sdt.model import SDTTransformer as SDTTransformer
    from fairseq_depthwise.serving import moses_normalized as moses_normalized
elif "fairseq" in sys.modules:
    # Some other fairseq is importing its --user-dir. Without fairseq only `fairseq-depthwise doctor` gets this far, and
    # it must be able to say what is wrong.
    raise fairseq_compat.UserError(_problem)
