"""What looks through exported files before they are loaded, and what compiles.

Its modules import nothing of this package, nor fairseq.
"""
