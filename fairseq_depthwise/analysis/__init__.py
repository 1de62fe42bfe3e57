"""What trained models have learned. A module with an ``ANALYSIS`` is a subcommand: options, measure, table, figure."""
