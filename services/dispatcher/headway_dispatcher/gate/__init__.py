"""Gate: admit waiting work as far as capacity allows, and write leases and orders."""
