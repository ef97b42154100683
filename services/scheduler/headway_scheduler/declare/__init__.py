"""Declare: compare definitions from code, files and the API with the stored ones, and store or
plan the change.
"""
