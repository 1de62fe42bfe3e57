"""Subcommands that analyze trained models."""
