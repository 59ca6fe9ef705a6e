"""Who can reach a worker, which runs what it is sent by everybody."""

import ipaddress

from tff_pcdd.options import OptionError


def check_bind(bind: str, insecure: bool, engine: str) -> None:
    """Refuses what would open the worker to others without being asked to.

    Raises:
        OptionError: saying what is missing.
    """
    if insecure:
        return
    if engine == "tff":
        raise OptionError(
            "--engine=tff: TFF's C++ worker listens on every network interface, whatever --bind "
            "says, and is not authenticated; add --insecure if only trusted machines can reach "
            "this one, or use --engine=inprocess"
        )
    if not is_loopback(bind):
        raise OptionError(
            f"--bind={bind}: other machines could reach the worker, which is not authenticated; "
            "add --insecure if all that can are trusted"
        )


def is_loopback(bind: str) -> bool:
    """Whether only this machine can reach an address.

    Raises:
        OptionError: it is no address.
    """
    if bind == "localhost":
        return True
    try:
        return ipaddress.ip_address(bind).is_loopback
    except ValueError:
        raise OptionError(f"--bind={bind}: is not an IP address") from None
