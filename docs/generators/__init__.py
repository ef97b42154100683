"""Generators of files that are checked in: pages, schemas, documents of the API, alert rules.

Each module has `files(root)`, which returns the content of its files by path, and `__main__` writes
or checks them all. No service imports this package.
"""
