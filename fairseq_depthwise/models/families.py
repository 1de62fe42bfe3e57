"""All families, which fairseq knows once this is imported."""

import sys

from fairseq_depthwise.models.depthwise_lstm import model as depthwise_lstm_transformer
from fairseq_depthwise.models.linearized import model as linearized_transformer
from fairseq_depthwise.models.mute import model as mute_transformer
from fairseq_depthwise.models.sdt import model as sdt_transformer

__all__ = ["depthwise_lstm_transformer", "linearized_transformer", "mute_transformer", "sdt_transformer"]

# Programs may import the models from the paths that they had before each family got a folder.
for _name in __all__:
    sys.modules[f"fairseq_depthwise.models.{_name}"] = globals()[_name]
