"""Which of the ways to see processes this machine has."""

from swactor_diag.introspect._linux_proc import LinuxProc, kernel_units
from swactor_diag.introspect._procfs import EmptyProc, ProcRoot, ProcUnits


def native_proc() -> tuple[ProcRoot, ProcUnits]:
    """Return how processes of this machine are seen, and in which units: ``/proc``, psutil, not at all."""
    linux = LinuxProc()
    if linux.read_text("self/stat") is not None:
        return linux, kernel_units()
    try:
        from swactor_diag.introspect._psutil_proc import UNITS, PsutilProc  # here: Linux does without it
    except ImportError:
        return EmptyProc(), ProcUnits()
    return PsutilProc(), UNITS
