"""Numbers and ranges as they are typed on the command line."""

from taskscape.errors import DataError

__all__ = ["parse_range", "parse_shots"]


def parse_range(text: str, option: str) -> int | tuple[int, int]:
    """Read ``5`` or ``5-10``.

    >>> parse_range("5-10", "--n-way")
    (5, 10)
    """
    low, dash, high = text.replace("–", "-").partition("-")
    try:
        return (int(low), int(high)) if dash else int(low)
    except ValueError:
        raise DataError(
            f"{option} {text!r}: use a number such as 5, or a range such as 5-10."
        ) from None


def parse_shots(text: str, option: str) -> int | tuple[int, int] | str:
    """Read ``16``, ``1-5`` or ``all``."""
    return text if text == "all" else parse_range(text, option)
