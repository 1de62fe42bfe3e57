"""The linearization probe: how much a model's score drops when a linear layer replaces one of its layers."""
