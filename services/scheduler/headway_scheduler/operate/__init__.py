"""Operate: requests of people and programs that change something.

`desk` receives every request and opens its transaction. The other modules carry one kind out:
`changes` (settings), `pause` (with `foresee`: the fires that follow its end), `triggers`, `cancel`,
`enqueue` and `applications`.
"""
