"""Retries: what follows a failure.

`retries` decides between another attempt and a dead letter, and when a notification is sent again.
`dead_letters` judges retries and acknowledgements of dead letters, and groups equal failures by a
fingerprint. `canaries` retries dead letters in growing steps.
"""
