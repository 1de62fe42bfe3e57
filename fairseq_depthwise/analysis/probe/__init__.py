"""The linearization probe."""
