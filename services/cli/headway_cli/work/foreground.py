"""`headway run`: one run of a job in this process, without servers."""

from collections.abc import Generator
from typing import Any

import click
import msgspec
from headway.define.jobs import Job
from headway.worker import UnknownJobs, choose_jobs
from headway.worker.context import ActivationRequest, Context
from headway.worker.outcomes import encode_output, failure_of
from headway_clock import monotonic, new_id
from headway_contract.lifecycle import Failure
from headway_contract.orders import OrderedRun
from headway_service_kit.process import run as run_program
from headway_tracing.log import get_logger

from headway_cli.serve.find_app import load_app
from headway_cli.serve.session import NOT_COMPLETED
from headway_cli.terminal import options
from headway_cli.terminal.output import print_json

log = get_logger(__name__)


@click.command()
@click.argument("job", metavar="JOB")
@options.text("--input", "JSON", "Input of the job.", default=None)
@click.option(
    *("--app", "target"),
    envvar="HEADWAY_APP",
    default="app.py",
    show_default=True,
    metavar="APP",
    help="Your app: file.py, module or module:name. [HEADWAY_APP]",
)
@options.json_option
@options.debug_option
def run(job: str, target: str, input: str | None, as_json: bool) -> int:  # noqa: A002 - its flag
    """Run a job of your app once, here and without a schedule.

    It runs in this process and needs no server. The log goes to standard error, the output to
    standard output. There are no retries, limits and timeouts, nothing is recorded, and activations
    are only logged. The exit code is 1 if the run fails.
    """
    app = load_app(target)
    app.definitions()
    try:
        chosen = choose_jobs(app, [job])[job]
    except UnknownJobs as error:
        raise click.BadParameter(f"{error}.", param_hint="'JOB'") from error
    given = None if input is None else options.read_json(input)
    problem = chosen.problem_of_input(given)
    if problem is not None:
        raise click.BadParameter(
            f"job {job!r} does not accept it: {problem}", param_hint="'--input'"
        )
    began = monotonic()
    try:
        outcome = _run_body(chosen, given)
    except KeyboardInterrupt:
        click.echo(f"headway: {job} interrupted after {monotonic() - began:.3f} s", err=True)
        raise
    _print(job, outcome, monotonic() - began, as_json=as_json)
    return NOT_COMPLETED if isinstance(outcome, Failure) else 0


def _print(job: str, outcome: msgspec.Raw | Failure, seconds: float, *, as_json: bool) -> None:
    if as_json:
        failed = isinstance(outcome, Failure)
        parts = (None, outcome) if failed else (outcome, None)
        word = "failed" if failed else "completed"
        print_json({"outcome": word, "output": parts[0], "failure": parts[1]})
    elif isinstance(outcome, Failure):
        click.echo(outcome.stack, err=True, nl=False)
        how = f"failed after {seconds:.3f} s: {outcome.kind}: {outcome.message}"
        click.echo(f"headway: {job} {how}", err=True)
    else:
        click.echo(f"{job} completed after {seconds:.3f} s", err=True)
        if bytes(outcome) != b"null":
            click.echo(bytes(outcome))


def _run_body(job: Job, given: Any) -> msgspec.Raw | Failure:
    """Run the body, a plain function in the main thread, where a debugger works best."""
    ids: Any = {"run": new_id(), "work": new_id(), "group": job.group, "cause": "headway run"}
    ordered = OrderedRun(**ids, attempt=1, attempts=1, input=given)
    surroundings = _Foreground()
    context = Context(ordered, job.name, surroundings, surroundings)
    arguments = (context, job.read_input(given)) if job.takes_input else (context,)
    try:
        called = job.function(*arguments)
        output = run_program(called) if job.is_async else called
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the outcome contains it
        return failure_of(error)
    return encode_output(output)


class _Foreground:
    """Logs the progress and the activations of a run; awaiting an activation is immediate."""

    def activate(self, requests: list[ActivationRequest]) -> "_Foreground":
        """Log the activations."""
        for request in requests:
            log.info("not activated", manifest=request.manifest, input=request.input)
        return self

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()

    def progress(self, percent: float | None, message: str | None) -> None:
        """Log the progress."""
        log.info("progress", percent=percent, message=message)

    def line(self, level: str, message: str, fields: dict[str, Any]) -> None:
        """Do nothing: the line is in Python's logging, too."""
