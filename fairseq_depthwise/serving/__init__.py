"""Serving translations over HTTP, and translating on the machines of a cluster."""
