"""One module per place that machines come from."""
