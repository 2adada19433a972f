"""Names come from anybody's data: here they are kept from being read as markup or formulas."""

__all__ = ["literal", "plain"]

_UNSAFE_IN_PLOTLY = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "%": "&#37;", "$": "&#36;", "\n": " "}
)


def plain(text: str) -> str:
    r"""A text that matplotlib draws as it is; between two ``$`` it would look for a formula.

    >>> print(plain("$a_"))
    \$a_
    """
    return text.replace("$", r"\$")


def literal(text: object) -> str:
    """Text as plotly shows it unchanged: plotly reads some HTML, ``%{…}`` and ``$…$``.

    >>> literal("<b>50 %</b>")
    '&lt;b&gt;50 &#37;&lt;/b&gt;'
    """
    return str(text).translate(_UNSAFE_IN_PLOTLY)
