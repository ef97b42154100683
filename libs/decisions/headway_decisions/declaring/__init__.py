"""Declaring: definitions from code, files and operators.

`app_sources` decides whether code or files may declare an application, `ownership` decides who owns
each setting, and `lookup` describes stored manifests and finds cycles among dependents.
"""
