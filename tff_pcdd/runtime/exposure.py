"""Checks that a worker, which runs any program it is sent, is not exposed by accident."""

import ipaddress

from tff_pcdd.errors import SettingError


def check_bind(bind: str, insecure: bool, engine: str) -> None:
    """Checks that other machines cannot reach the worker, unless `insecure` is set.

    Args:
        bind: the IP address to listen on, or "localhost".
        insecure: whether other machines may reach the worker.
        engine: "inprocess" or "tff".

    Raises:
        SettingError: other machines could reach the worker, or `bind` is not an IP address.
    """
    if insecure:
        return
    if engine == "tff":
        raise SettingError(
            "engine",
            engine,
            "TFF's C++ worker ignores `bind`, listens on every network interface, and is not "
            "authenticated; set `insecure` if only trusted machines can reach this one, or use "
            "engine=inprocess",
        )
    if not is_loopback(bind):
        raise SettingError(
            "bind",
            bind,
            "other machines could reach the worker, which is not authenticated; set `insecure` if "
            "all of them are trusted",
        )


def is_loopback(bind: str) -> bool:
    """Whether an address can be reached from this machine only.

    Raises:
        SettingError: `bind` is not an IP address.
    """
    if bind == "localhost":
        return True
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        raise SettingError("bind", bind, "is not an IP address") from None
