"""The zstd library: Python's own, or the same for the versions before it.

Importing this fails where there is none: it comes with the extra of the collector.
"""

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
