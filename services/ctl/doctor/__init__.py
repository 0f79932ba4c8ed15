"""`sluice doctor`: looks for what is wrong, and says what to do about each thing."""
