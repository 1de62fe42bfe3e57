"""The check of exported files, and the compiler process. Neither imports fairseq or anything else of this package."""
