"""A translator behind HTTP: requests that come together are searched together."""
