"""Subcommands that analyse trained models."""
