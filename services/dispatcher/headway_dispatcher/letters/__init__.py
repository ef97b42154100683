"""Letters: dead letters, their retries and acknowledgements."""
