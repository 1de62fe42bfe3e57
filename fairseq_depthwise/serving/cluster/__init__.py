"""Translating large texts: blocks of lines on many machines, and on disk until all of them are there."""
