"""All that is done inside one sandbox whose backend runs shell lines: commands, jobs and files over one `Shell`."""

from __future__ import annotations

from differently_core.runtime.clock import Clock

from .jobs import IN_TMPDIR, ShellJobs
from .shell_files import Carriers, ShellFiles
from .supervised import Shell, Supervised


class Inside:
    """Made for one call or many; it keeps nothing of the sandbox."""

    def __init__(self, shell: Shell, clock: Clock, carriers: Carriers | None = None) -> None:
        self.commands = Supervised(shell, clock)
        self.jobs = ShellJobs(lambda _, request, most: self.commands.exec(request, most), lambda _: IN_TMPDIR)
        self.files = ShellFiles(self.commands.exec, clock, carriers)
