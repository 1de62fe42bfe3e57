"""Multi-unit Transformer: parallel units in each encoder layer (Yan et al. 2020)."""
