"""Commands that set up access, notifications and settings."""
