"""The linearization probe: how much a model's score drops when a linear layer replaces one of its layers.

example:
  fairseq-depthwise probe checkpoints/checkpoint_best.pt --data data-bin --output probe
  fairseq-depthwise probe depthwise.pt --data data-bin --output probe --compare transformer.pt
"""

from fairseq_depthwise.analysis.probe.probe import add_to as add_to
from fairseq_depthwise.analysis.probe.probe import run as run
