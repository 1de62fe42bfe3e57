"""One module for each format of exported folders."""
