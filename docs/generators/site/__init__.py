"""The documentation site: the pages of the repository, staged for MkDocs in `.site/pages`.

`pages` places each page, rewrites its links, and adds a page for each file outside of `docs` that a
page links to, so that no link leaves the site. The other modules write the parts of reference that
come from code: commands, Python API, HTTP routes, messages, decisions. `python -m generators.site`
stages and builds everything; the settings of the site are in `mkdocs.yml`.
"""
