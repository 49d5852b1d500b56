"""What an address says about who can reach it.

Owns: that one question, which every server that may listen without a token has to ask.
"""

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether ``host``, an address or a name, means this machine only. Names other than localhost do not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
