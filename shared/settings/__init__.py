"""The base of every service's settings. The only reader of the environment."""
