"""Terminal: shared options, output, times, confirmation and progress. Knows no service."""
