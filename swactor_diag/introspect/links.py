"""The interfaces of this process's network namespace, asked for through a socket: netdevice(7).

Owns: `SocketLinks`. Not here: what is asked for and when (``host``).

``/sys/class/net`` is no source: it shows the namespace that it was mounted in, which need not be ours. Nor is
``/proc/net``: it does not say of which interface an IPv4 address is.
"""

import array
import errno
import fcntl
import socket
import struct

from swactor_diag.introspect._procfs import ProcReadError
from swactor_diag.introspect.host import LinkState

_GET_ADDRESSES, _GET_FLAGS, _GET_MTU = 0x8912, 0x8913, 0x8921  # SIOCGIFCONF, SIOCGIFFLAGS, SIOCGIFMTU
_FLAG_UP = 0x1
_NAME_BYTES_MAX = 15
_ROW_BYTES = struct.calcsize("16s2LH3B0L")
"""Of a ``struct ifreq``: a name, and the largest of what it may hold."""
_ROWS_MAX = 2048


class SocketLinks:
    """Implements `Links`."""

    def addresses(self) -> tuple[tuple[str, str], ...]:
        """See `Links.addresses`."""
        rows = array.array("B", bytes(_ROWS_MAX * _ROW_BYTES))
        start, size = rows.buffer_info()
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
                answer = fcntl.ioctl(asked, _GET_ADDRESSES, struct.pack("iP", size, start))
        except OSError as error:
            raise ProcReadError("addresses", errno.errorcode.get(error.errno or 0, "OSError")) from error
        used = struct.unpack("iP", answer)[0]
        return tuple(_row(rows[at : at + _ROW_BYTES].tobytes()) for at in range(0, used, _ROW_BYTES))

    def state(self, name: str) -> LinkState | None:
        """See `Links.state`."""
        request = struct.pack(f"{_ROW_BYTES}s", name.encode()[:_NAME_BYTES_MAX])
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
                (flags,) = struct.unpack_from("H", fcntl.ioctl(asked, _GET_FLAGS, request), 16)
                (mtu,) = struct.unpack_from("i", fcntl.ioctl(asked, _GET_MTU, request), 16)
        except OSError:
            return None
        return LinkState(mtu=mtu, up=bool(flags & _FLAG_UP))


def _row(row: bytes) -> tuple[str, str]:
    """Behind the name there is a ``struct sockaddr_in``: family, port, address."""
    label = row[:16].partition(b"\0")[0].decode("utf-8", "replace")
    return label.partition(":")[0], socket.inet_ntoa(row[20:24])  # an address may be called eth0:1
