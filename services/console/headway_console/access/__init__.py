"""Authentication and roles.

A request authenticates with a bearer token (`tokens`: from a file; `issuer`: JWTs of an OIDC
issuer) or with the signed cookie of a browser session (`sessions`). `authentication` finds the
person, and `guards` authorizes: a route that does not declare the role that it needs is refused. A
change from a browser also needs a CSRF token. Failed sign-ins are counted and limited (`attempts`).
"""
