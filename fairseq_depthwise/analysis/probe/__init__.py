"""The linearization probe: what a model loses when one of its layers is replaced by a linear layer.

example:
  fairseq-depthwise probe checkpoints/checkpoint_best.pt --data data-bin --output probe
  fairseq-depthwise probe depthwise.pt --data data-bin --output probe --compare transformer.pt
"""

from fairseq_depthwise.analysis.probe.probe import add_to as add_to
from fairseq_depthwise.analysis.probe.probe import run as run
