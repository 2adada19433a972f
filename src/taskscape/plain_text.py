"""Text for figures and pages: names of anybody's data as they are."""

from collections.abc import Iterable

_UNSAFE_IN_PLOTLY = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", "%": "&#37;", "$": "&#36;", "\n": " "}
)


def for_matplotlib(text: str) -> str:
    r"""A text that matplotlib draws as it is; between two ``$`` it would look for a formula.

    >>> print(for_matplotlib("$a_"))
    \$a_
    """
    return text.replace("$", r"\$")


def for_plotly(text: object) -> str:
    """Text as plotly shows it unchanged: plotly reads some HTML, ``%{…}`` and ``$…$``.

    >>> for_plotly("<b>50 %</b>")
    '&lt;b&gt;50 &#37;&lt;/b&gt;'
    """
    return str(text).translate(_UNSAFE_IN_PLOTLY)


def low_to_high(numbers: Iterable[int]) -> str:
    """The range of some numbers, or the one that they all are.

    >>> low_to_high([2, 4, 3]), low_to_high([5, 5])
    ('2 to 4', '5')
    """
    every = sorted(numbers)
    return f"{every[0]}" if every[0] == every[-1] else f"{every[0]} to {every[-1]}"
