# Headway: every command of the project. `./justw <recipe>` works with nothing but Python.

set positional-arguments

uv := "uv run --quiet"

# Commands and tests start many processes, and each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE := ""
export UV_COMPILE_BYTECODE := "1"

# List the recipes
default:
    @just --list --unsorted

# Show the product working on embedded servers (--with-typescript: also with a worker in TypeScript)
[no-exit-message] # Ctrl-C is its usual end
demo *arguments:
    @examples/demo "$@"

# Take the pictures of the console in docs/screenshots: of the demo and of a nightly job (needs Chromium)
screenshots:
    @PYTHONPATH=tests {{uv}} python tests/browser/screenshots.py docs/screenshots

# Record `headway up`, a failure and `headway explain` into docs/recording.svg (needs tmux)
recording:
    @{{uv}} python tests/browser/recording.py docs/recording.svg

# Everything to run before a commit: format, lint, types, import contracts, generated files, unit tests
check:
    uv lock --check
    {{uv}} ruff format --check .
    {{uv}} ruff check .
    {{uv}} mypy
    {{uv}} lint-imports
    PYTHONPATH=docs {{uv}} python -m generators --check
    PYTHONPATH=docs {{uv}} --group docs python -m generators.site
    {{uv}} pytest -q tests/unit tests/architecture

# Unit and architecture tests, each promise, and one test for each behaviour, on the embedded servers
test *arguments:
    {{uv}} pytest -n 3 --dist worksteal -m "not thorough or promised" "$@"

# All tests but the long ones (HEADWAY_TEST_SERVERS=containers for testcontainers)
test-all *arguments:
    {{uv}} pytest -n 3 --dist worksteal "$@"

# A quarter of twenty mixed manifests through the real services under a virtual clock
simulate *arguments:
    HEADWAY_SIMULATE_DAYS=90 {{uv}} pytest tests/simulation --durations 3 "$@"

# Faults under a longer load: a broker that loses its storage, among others
faults *arguments:
    HEADWAY_LONG=1 HEADWAY_FAULT_SECONDS=20 {{uv}} pytest -m "not long" tests/faults --durations 5 "$@"
    HEADWAY_LONG=1 {{uv}} pytest -m long --durations 5 "$@"

# Compare figures with their targets (--peers: and with other queues; `bench scheduling`: one script)
bench *arguments:
    @PYTHONPATH=tests {{uv}} python -m benchmarks "$@"

# Generate the secrets that compose and the development overlay read (once)
secrets:
    @deploy/make-secrets

# The image, compose and Kubernetes files: valid, secure, and about things that exist
deploy-check:
    {{uv}} pytest -q tests/deploy
    deploy/lint

# Make the files of a release in dist: wheels, npm package, image, bills of materials, checksums
release *arguments:
    PYTHONPATH=docs {{uv}} python deploy/release.py "$@"

# Build Jaeger by Go into .tools, for the test that reads a trace back from it (once, ten minutes)
jaeger:
    @tests/jaeger/build

# Hold the AsyncAPI document against the official schema, which is fetched by npm
asyncapi:
    mkdir -p .tools
    npm pack --silent --pack-destination .tools @asyncapi/specs@6.11.1
    tar -xzf .tools/asyncapi-specs-6.11.1.tgz -C .tools package/schemas/3.0.0.json
    HEADWAY_ASYNCAPI_SCHEMA=.tools/package/schemas/3.0.0.json {{uv}} pytest -q tests/unit/test_asyncapi.py

# Write the generated files: JSON Schemas, AsyncAPI, OpenAPI, diagrams and pages of reference
generate:
    PYTHONPATH=docs {{uv}} python -m generators

# Build the documentation site into .site/html; a dead link or anchor fails
docs:
    PYTHONPATH=docs {{uv}} --group docs python -m generators.site

# Format and mend what lint can mend
format:
    {{uv}} ruff check --fix .
    {{uv}} ruff format .
