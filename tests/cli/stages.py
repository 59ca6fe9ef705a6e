"""The lines by which a program says what it is doing before the first round."""


def without_stages(err: str) -> str:
    """Standard error without these lines, which end in an ellipsis."""
    return "".join(line for line in err.splitlines(keepends=True) if not line.endswith(" …\n"))
