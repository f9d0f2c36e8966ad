"""The name of a store and its servers, for the admin and the console."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .core.server_info import MEMORY

if TYPE_CHECKING:
    from .core.server_info import Topology


def describe(topology: Topology, away: int = 0) -> str:
    """Return a text such as "Redis Cluster, 3 masters, 2 reachable".

    Args:
        topology: the servers. If it has the servers of a lock, they follow.
        away: how many of the servers can't be asked.
    """
    servers, service = topology.servers, topology.service
    if topology.kind == MEMORY:
        text = _("the memory of this process; other processes have locks of their own")
    elif topology.kind == "standalone":
        text = f"Redis {servers[0]}"
    elif topology.kind == "sentinel" and servers:
        text = _("Redis Sentinel, master %(server)s of %(service)s") % {"server": servers[0], "service": service}
    elif topology.kind == "sentinel":
        text = f"Redis Sentinel, {service}"
    elif topology.kind == "cluster" and servers:
        masters = ngettext("%(count)d master", "%(count)d masters", len(servers)) % {"count": len(servers)}
        text = f"Redis Cluster, {masters}"
    elif topology.kind == "cluster":
        text = "Redis Cluster"
    elif topology.kind == "redlock":
        text = "Redlock, " + ngettext("%(count)d server", "%(count)d servers", len(servers)) % {"count": len(servers)}
    else:
        text = topology.kind
    if away and len(servers) > 1:
        text += ", " + _("%(count)d reachable") % {"count": max(0, len(servers) - away)}
    if topology.asked:
        text += "; " + _("this lock: %(servers)s") % {"servers": ", ".join(topology.asked)}
    return text
