"""Who comes in, and what they may do.

A request is somebody's by a bearer token (`tokens`: those of a file; `issuer`: JWTs of an OIDC
issuer) or by the signed cookie of a browser session (`sessions`, begun by `sign_in` pages).
`authentication` finds out who it is and `guarding` decides: every route declares the role that it
needs, and one that does not keeps the console from starting. What a browser sends by itself is not
enough to change anything: `forgery` wants proof that the console's own page has asked. Sign-ins
that fail are counted (`attempts`), and too many of them are put off.
"""
