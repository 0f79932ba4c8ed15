"""Every parser at a border, given input of nobody who means well: `make fuzz`."""
