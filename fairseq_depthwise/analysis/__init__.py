"""What trained models have learned: functions that return tables, and figures apart from them."""
