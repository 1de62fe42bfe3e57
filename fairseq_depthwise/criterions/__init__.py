"""Criterions: what is minimized."""

from fairseq_depthwise.criterions import label_smoothed_cross_entropy_with_auxiliary, linearization_probe

__all__ = ["label_smoothed_cross_entropy_with_auxiliary", "linearization_probe"]
