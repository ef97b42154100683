"""Terminal: options, tables, times, confirmation and error output that commands share."""
