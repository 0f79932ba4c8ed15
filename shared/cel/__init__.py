"""What all users of the Common Expression Language need: syntax trees, and failures in words."""
