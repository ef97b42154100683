"""Retries: what follows a failure.

`retries` decides between another attempt and a dead letter. `dead_letters` judges retries and
acknowledgements, and groups equal failures. `canaries` retries dead letters in growing steps.
"""
