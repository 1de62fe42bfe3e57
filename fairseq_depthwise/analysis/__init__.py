"""Measures of what trained models have learned: a module for each subcommand, with measure, table and figure."""
