"""Reference: generators of the settings page, the metrics page and the alert rules."""
