"""Several nodes that know each other: membership, names, and refs to actors elsewhere.

Start here: `Cluster`. Event types are in ``swactor.cluster.events``, transports in
``swactor.cluster.transport``, keys in ``swactor.cluster.identity`` (which needs the ``cluster`` extra).
"""

from swactor.cluster.events import MemberState
from swactor.cluster.members import SwimConfig
from swactor.cluster.node import Cluster, ClusterConfig, ClusterNotRunningError
from swactor.cluster.remote import LinkLostError, RemoteHandlerError, RemoteRef
from swactor.cluster.views import ConnectionView, LinksView, MemberView, NamesView, SwimView
from swactor.cluster.wire import MessageTooLargeError, UnknownMessageTypeError, WireError

__all__ = [
    "Cluster",
    "ClusterConfig",
    "ClusterNotRunningError",
    "ConnectionView",
    "LinkLostError",
    "LinksView",
    "MemberState",
    "MemberView",
    "MessageTooLargeError",
    "NamesView",
    "RemoteHandlerError",
    "RemoteRef",
    "SwimConfig",
    "SwimView",
    "UnknownMessageTypeError",
    "WireError",
]
