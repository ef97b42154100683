"""Declaring: which source may declare an application, and who owns each setting."""
