"""Reports of training runs, from their logs: numbers and figures."""
