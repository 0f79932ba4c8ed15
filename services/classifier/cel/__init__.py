"""CEL as this project uses it: compile, check, evaluate."""
