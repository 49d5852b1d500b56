"""What the provider of a rented machine says about it: snapshot block ``vastai``. Emits no events.

Only variables of known prefixes, minus everything that may be a secret. On a machine that no provider rented
out there is no block: graphics variables alone do not make a rental.
"""

from collections.abc import Mapping
from itertools import islice

from msgspec import UNSET

from swactor.abc import Clock
from swactor_diag.introspect._command_line import may_be_secret, readable_command
from swactor_diag.schema.network import RentalBlock

PROVIDER_PREFIXES = ("VAST_", "VASTAI_", "CONTAINER_")
"""Set by the provider only; one of them makes a rental."""
OTHER_PREFIXES = ("CUDA_", "NVIDIA_")
SECRET_WORDS = ("TOKEN", "KEY", "SECRET", "PASS", "CREDENTIAL", "AUTH")
VARIABLES_MAX = 64
VALUE_BYTES_MAX = 256


class RentalIntrospector:
    """Shows the allow-listed part of an environment, as it was at the start."""

    name = "vastai"
    record = RentalBlock

    def __init__(self, environ: Mapping[str, str], *, clock: Clock, hostname: str | None = None) -> None:
        self._clock = clock
        self._hostname = hostname
        self._container_id = environ.get("CONTAINER_ID", "").strip()
        self._variables = allowed(environ)
        self._started_at_ms = clock.wall_ms()

    def observe(self) -> RentalBlock | None:
        """Return what the provider said, None when there is no provider."""
        if not any(name.startswith(PROVIDER_PREFIXES) for name, _ in self._variables):
            return None
        return RentalBlock(
            container_id=self._container_id or UNSET,
            hostname=self._hostname or UNSET,
            env_vars=self._variables,
            process_start_ms=self._started_at_ms,
            captured_at_ms=self._clock.wall_ms(),
        )


def allowed(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variables that may be shown, sorted by name, values cut, on one line, without passwords."""
    shown = (
        (name, readable_command((value.strip(),), bytes_max=VALUE_BYTES_MAX)[0])
        for name, value in sorted(environ.items())
        if name.startswith(PROVIDER_PREFIXES + OTHER_PREFIXES)
        and not may_be_secret(name)
        and not any(word in name.upper() for word in SECRET_WORDS)
        and value.strip()
    )
    return tuple(islice(shown, VARIABLES_MAX))
