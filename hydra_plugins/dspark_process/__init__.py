"""Where Hydra takes launchers from: it accepts them from ``hydra_plugins`` only."""

from dspark_factory.launching.process import ProcessLauncher as _ProcessLauncher


class ProcessLauncher(_ProcessLauncher):
    """See :class:`dspark_factory.launching.process.ProcessLauncher`."""
