"""What the console lists, read from both schemas with a role that can only read."""
