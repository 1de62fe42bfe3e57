"""Fused kernels of the depth-wise cell."""
