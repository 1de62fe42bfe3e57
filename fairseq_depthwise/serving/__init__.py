"""A translator that serves: over HTTP, and on the machines of a cluster."""
