"""Commands over history: audit, export, verify and rebuild."""
