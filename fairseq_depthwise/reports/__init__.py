"""Training runs as a page: what their logs and event files say, in numbers and figures."""
