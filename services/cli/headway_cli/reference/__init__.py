"""The settings, metrics and alert rules, and the pages generated from them."""
