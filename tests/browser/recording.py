"""A recording of `headway up`, a failing job and `headway explain`: `./justw recording`.

Runs the app of the README in two windows of tmux, which is a real terminal without a screen, and
writes what they show at a few moments into one animated SVG. It takes half a minute.
"""

import asyncio
import json
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path

from rich.color import blend_rgb
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME as THEME
from rich.text import Text

ROOT = Path(__file__).parents[2]
MANIFEST = "import-orders-every"
COLUMNS, UPPER, LOWER = 84, 28, 10
_PATIENCE_SECONDS = 60
# The screen of `up` follows within a second.
_SCREEN_SECONDS = 1.5
_PROMPT = "$ "
_BIN = Path(sys.executable).parent

# Of a cell, and around a window, in units of the picture.
_WIDTH, _HEIGHT, _FONT, _MARGIN, _BAR = 8.4, 18, 14, 16, 30
_BACKGROUND, _BORDER = THEME.background_color.hex, "#5a5f66"
_FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace"


@dataclass
class Window:
    """A shell in a terminal of its own."""

    socket: str
    name: str
    lines: int

    async def begin(self, folder: Path) -> None:
        path = f"{_BIN}:/usr/bin:/bin"
        clean = (
            "env",
            "-i",
            f"PATH={path}",
            "TERM=tmux-256color",
            "LANG=C.UTF-8",
            f"PS1={_PROMPT}",
        )
        size = ("-x", str(COLUMNS), "-y", str(self.lines))
        shell = (*clean, "bash", "--norc", "--noprofile")
        await self._tmux("new-session", "-d", "-s", self.name, *size, "-c", str(folder), *shell)
        await self.expect_prompt()

    async def type(self, keys: str) -> None:
        await self._tmux("send-keys", "-t", self.name, keys)

    async def screen(self) -> str:
        """Return its lines with their colours."""
        return await self._tmux("capture-pane", "-e", "-p", "-t", self.name)

    async def expect_prompt(self) -> None:
        """Wait until its command has ended."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not Text.from_ansi(await self.screen()).plain.rstrip().endswith(_PROMPT.strip()):
                await asyncio.sleep(0.2)

    async def _tmux(self, *arguments: str) -> str:
        program = await asyncio.create_subprocess_exec(
            *("tmux", "-S", self.socket, "-f", "/dev/null", *arguments),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await program.communicate()
        if program.returncode:
            raise SystemExit(f"tmux failed: {' '.join(arguments)}")
        return output.decode()


@asynccontextmanager
async def two_windows(folder: Path) -> AsyncIterator[tuple[Window, Window]]:
    """Two windows of a server of tmux that ends with them."""
    socket = str(folder / "tmux")
    upper, lower = Window(socket, "upper", UPPER), Window(socket, "lower", LOWER)
    try:
        await upper.begin(folder)
        await lower.begin(folder)
        yield upper, lower
    finally:
        await upper._tmux("kill-server")


async def until_listed(folder: Path, *command: str) -> None:
    """Wait until a command lists something, and until the screen of `up` shows it, too."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            program = await asyncio.create_subprocess_exec(
                *(_BIN / "headway", *command, "--json"),
                cwd=folder,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            output, _ = await program.communicate()
            if not program.returncode and json.loads(output):
                break
    await asyncio.sleep(_SCREEN_SECONDS)


async def record(folder: Path) -> list[tuple[str, str, float]]:
    """Run the commands; return both screens at each moment, and for how many seconds to show it."""
    frames: list[tuple[str, str, float]] = []
    async with two_windows(folder) as (upper, lower):

        async def show(seconds: float) -> None:
            frames.append((await upper.screen(), await lower.screen(), seconds))

        await upper.type("headway up app.py")
        await show(2)
        await upper.type("Enter")
        await until_listed(folder, "manifests")
        await show(3)
        await until_listed(folder, "runs", "--state", "failed")
        await show(3)
        await until_listed(folder, "dead-letters", "list")
        await show(3)
        await lower.type(f"headway explain {MANIFEST}")
        await show(2)
        await lower.type("Enter")
        await lower.expect_prompt()
        await show(9)
        await upper.type("C-c")
        await upper.expect_prompt()
    return frames


def segments_of(screen: str) -> list[list[Segment]]:
    """Return the styled pieces of each line of a screen."""
    console = Console(file=StringIO(), width=COLUMNS, force_terminal=True, legacy_windows=False)
    text = Text.from_ansi(screen.rstrip("\n"), no_wrap=True, overflow="crop")
    return list(Segment.split_lines(console.render(text)))


def colors_of(style: Style) -> tuple[str, str]:
    """Return the colour of the letters, and the one behind them or nothing."""
    front = style.color.get_truecolor(THEME) if style.color else THEME.foreground_color
    back = style.bgcolor.get_truecolor(THEME, foreground=False) if style.bgcolor else None
    if style.reverse:
        front, back = back or THEME.background_color, front
    if style.dim:
        front = blend_rgb(front, back or THEME.background_color, 0.45)
    return front.hex, back.hex if back else ""


def line_of(segments: Iterable[Segment]) -> str:
    """Draw one line at the origin; each piece has the width of its cells in any font."""
    drawn, column = "", 0
    for segment in segments:
        cells, style = segment.cell_length, segment.style or Style()
        front, back = colors_of(style)
        x, width = column * _WIDTH, cells * _WIDTH
        if back:
            drawn += (
                f'<rect x="{x:.1f}" y="-14" width="{width:.1f}" height="{_HEIGHT}" fill="{back}"/>'
            )
        if segment.text.strip():
            weight = ' font-weight="bold"' if style.bold else ""
            drawn += (
                f'<text x="{x:.1f}" textLength="{width:.1f}" fill="{front}"{weight}>'
                f"{escape(segment.text)}</text>"
            )
        column += cells
    return drawn


def window_of(top: float, lines: int) -> str:
    """Draw the frame of a window."""
    height = _BAR + lines * _HEIGHT + 8
    dots = "".join(
        f'<circle cx="{_MARGIN + 18 * number}" cy="{top + 15}" r="5" fill="{color}"/>'
        for number, color in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    width = COLUMNS * _WIDTH + 2 * _MARGIN - 2
    return (
        f'<rect x="1" y="{top}" width="{width:.1f}" height="{height}" rx="8" fill="{_BACKGROUND}"'
        f' stroke="{_BORDER}"/>{dots}'
    )


def draw(frames: list[tuple[str, str, float]]) -> str:
    """Draw all moments above each other; a style shows one after the other."""
    known: dict[str, str] = {}
    second = _BAR + UPPER * _HEIGHT + 24
    moments = []
    for upper, lower, _ in frames:
        uses = []
        for top, screen in ((1, upper), (second, lower)):
            for number, segments in enumerate(segments_of(screen)):
                if drawn := line_of(segments):
                    name = known.setdefault(drawn, f"l{len(known)}")
                    y = top + _BAR + _FONT + number * _HEIGHT
                    uses.append(f'<use href="#{name}" x="{_MARGIN}" y="{y}"/>')
        moments.append("".join(uses))
    total, since, styles = sum(seconds for *_, seconds in frames), 0.0, []
    for number, (*_, seconds) in enumerate(frames):
        begin, end = 100 * since / total, 100 * (since + seconds) / total
        styles.append(
            f"@keyframes k{number}{{0%{{visibility:hidden}}{begin:.1f}%{{visibility:visible}}"
            f"{end:.1f}%,100%{{visibility:{'visible' if end >= 100 else 'hidden'}}}}}"
            f"#f{number}{{animation:k{number} {total}s step-end infinite}}"
        )
        since += seconds
    width, height = round(COLUMNS * _WIDTH) + 2 * _MARGIN, second + _BAR + LOWER * _HEIGHT + 10
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    last = len(frames) - 1
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            "<title>headway up shows a failure, headway explain says why</title>",
            # Without animations the last moment stays, which shows everything.
            f"<style>text{{font:{_FONT}px {_FONTS};white-space:pre}}"
            f".f{{visibility:hidden}}#f{last}{{visibility:visible}}"
            f"@media (prefers-reduced-motion:no-preference){{{''.join(styles)}}}</style>",
            "<defs>",
            *(f'<g id="{name}">{drawn}</g>' for drawn, name in known.items()),
            "</defs>",
            window_of(1, UPPER) + window_of(second, LOWER),
            *(f'<g class="f" id="f{number}">{uses}</g>' for number, uses in enumerate(moments)),
            "</svg>\n",
        ]
    )


def app_of_the_readme() -> str:
    """Return the first app of the README."""
    [app, *_] = re.findall(
        r"```python\n(# app\.py\n.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    return app


def main() -> None:
    """Write the recording into the file that is named."""
    target = Path(sys.argv[1])
    if shutil.which("tmux") is None:
        raise SystemExit("there is no tmux: 'apt-get install tmux'")
    with tempfile.TemporaryDirectory(prefix="recording-") as folder:
        Path(folder).chmod(0o711)  # PostgreSQL of root runs under another account
        Path(folder, "app.py").write_text(app_of_the_readme())
        frames = asyncio.run(record(Path(folder)))
    target.write_text(draw(frames), encoding="utf-8")
    sys.stdout.write(f"{target} {target.stat().st_size // 1024} kB, {len(frames)} moments\n")


if __name__ == "__main__":
    main()
