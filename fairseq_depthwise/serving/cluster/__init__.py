"""Translating large texts: blocks of lines on many machines, kept on disk until all are done."""
