"""Gate: admit work within the limits."""
