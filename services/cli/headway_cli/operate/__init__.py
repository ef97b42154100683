"""Commands for tokens, sign-in, notifications and settings."""
