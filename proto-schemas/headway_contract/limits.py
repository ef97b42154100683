"""How large things may be. Whoever takes something in checks; nobody is trusted to have."""

INPUT_LIMIT = 256 * 1024
OUTPUT_LIMIT = 256 * 1024

# Of a failure, in characters. Of a stack the end is kept, which tells most.
KIND_LIMIT = 255
KINDS_LIMIT = 32
MESSAGE_LIMIT = 4 * 1024
STACK_LIMIT = 16 * 1024

OUTPUT_TOO_LARGE = "output_too_large"
