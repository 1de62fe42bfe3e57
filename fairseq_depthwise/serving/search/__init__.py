"""What is searched for and what is found: a line's pieces, constraints, hypotheses, alignments."""
