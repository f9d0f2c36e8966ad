"""Parses the form of LOCATION that names nodes of a Cluster: ``redis+cluster://user:password@n1:7000,n2:7000``.

The other nodes are discovered. The login and the options are those of all nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from . import server_list
from .server_list import Address, join_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .server_list import ServerList

CLUSTER_SCHEMES: Final = ("redis+cluster", "rediss+cluster", "valkey+cluster", "valkeys+cluster")
CLUSTER_PORT: Final = 6379


def is_cluster(location: str) -> bool:
    """Return whether the scheme of a LOCATION is one of a Cluster."""
    return location.partition("://")[0] in CLUSTER_SCHEMES


def parse(location: str, options: Mapping[str, Any] | None = None) -> ServerList:
    """Parse a LOCATION that names nodes of a Cluster.

    Args:
        location: the URL.
        options: ``OPTIONS``, which may have the number of a database, too.

    Raises:
        ValueError: it can't be parsed. The message is the second half of a sentence, and shows no login.
    """
    found = server_list.parse(location, "node", CLUSTER_PORT, "all nodes")
    database = dict(found.query).get("db") or found.path or str((options or {}).get("db", 0))
    if database != "0":
        raise ValueError(f"has the database {database!r}: a Cluster has only database 0")
    return found


def node_url(nodes: ServerList, node: Address) -> str:
    """Return the URL of one node."""
    login = f"{nodes.login}@" if nodes.login else ""
    query = f"?{urlencode(nodes.query)}" if nodes.query else ""
    return f"redis{'s' * nodes.tls}://{login}{join_address(*node)}/0{query}"


def identity(nodes: ServerList) -> str:
    """Return a name of the Cluster."""
    return f"cluster:{','.join(sorted(nodes.addresses))}/0"
