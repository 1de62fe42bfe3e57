"""From trained checkpoints to numbers: averaging, scores, significance."""
