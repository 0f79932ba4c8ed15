"""The API over HTTP: what `kubectl` and other clients talk to."""
