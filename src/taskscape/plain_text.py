"""Names as matplotlib should draw them: letter by letter."""

__all__ = ["plain"]


def plain(text: str) -> str:
    r"""A text that matplotlib draws as it is; between two ``$`` it would look for a formula.

    >>> print(plain("$a_"))
    \$a_
    """
    return text.replace("$", r"\$")
