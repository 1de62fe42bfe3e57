"""The linearization probe: what a model loses when one of its layers is replaced by a linear layer."""

from fairseq_depthwise.analysis.probe.probe import ANALYSIS as ANALYSIS
