"""What trained models have learned. Here are the modules of the subcommands that measure it: measure, table, figure."""
