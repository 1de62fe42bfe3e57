"""What looks through exported files before they are loaded; its modules import nothing of this package, nor fairseq."""
