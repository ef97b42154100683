"""Commands over history: audit, export, rebuild and verify."""
