"""The name of a store and its servers, for the admin and the console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

if TYPE_CHECKING:
    from .core.server_info import Topology


def describe(topology: Topology, away: int = 0) -> str:
    """Return a text such as "Redis Cluster, 3 masters, 2 reachable".

    Args:
        topology: the servers. If it has the servers of a lock, they follow.
        away: how many of the servers can't be asked.
    """
    servers = topology.servers
    text = _name(topology)
    if away and len(servers) > 1:
        text += ", " + _("%(count)d reachable") % {"count": max(0, len(servers) - away)}
    if topology.asked:
        text += "; " + _("this lock: %(servers)s") % {"servers": ", ".join(topology.asked)}
    return text


def _name(topology: Topology) -> str:
    servers, service, count = topology.servers, topology.service, len(topology.servers)
    match topology.kind:
        case "memory":
            return _("the memory of this process; other processes have locks of their own")
        case "standalone":
            return f"Redis {servers[0]}"
        case "sentinel" if servers:
            return _("Redis Sentinel, master %(server)s of %(service)s") % {"server": servers[0], "service": service}
        case "sentinel":
            return f"Redis Sentinel, {service}"
        case "cluster" if servers:
            return "Redis Cluster, " + ngettext("%(count)d master", "%(count)d masters", count) % {"count": count}
        case "cluster":
            return "Redis Cluster"
        case "redlock":
            return "Redlock, " + ngettext("%(count)d server", "%(count)d servers", count) % {"count": count}
        case "zookeeper":
            return f"ZooKeeper {', '.join(servers)}"
    return topology.kind
