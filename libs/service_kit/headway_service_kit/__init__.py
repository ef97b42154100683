"""Common parts of the services; independent of the domain.

- `settings`: reads environment and flags into a frozen struct and reports all problems together;
  `settings_text` describes settings and their sources.
- `service`: a database, a broker, passes over them and health, started and stopped together.
- `passes`: the loop around a pass: waits, retries and reports.
- `health`: serves `/livez` and `/readyz` with the reason in the body, and `/metrics`.
- `metrics`: definitions of metrics, their values, and sources that are read at a scrape.
- `telemetry`: exports spans if an endpoint is configured.
- `process`: signals, logging and retries of a program.
"""
