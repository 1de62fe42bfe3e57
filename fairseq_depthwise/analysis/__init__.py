"""Analyses of trained models: a module for each subcommand, with its measurements, table and figure."""
