"""Mechanism of a service; knows no word of the domain.

- `settings`: environment and flags into a frozen struct, all problems reported together;
  `describing` says what there is.
- `service`: a database, a broker, passes over them and health, as one thing to start and stop.
- `passes`: the loop around a pass, which only waits, counts and reports.
- `health`: `/livez` and `/readyz`, telling the truth with the reason in the body; `/metrics`.
- `metrics`: what is measured, as data; the numbers; and sources that are asked for some of them.
- `telemetry`: exporting spans where an endpoint is configured.
- `process`: signals, logging and the outermost error handling of a program.
"""
