"""Text for figures and pages: names of anybody's data as they are, and tables in Markdown."""

from collections.abc import Iterable, Sequence

__all__ = ["for_matplotlib", "for_plotly", "markdown_table"]

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


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, with a line for its header and one for each row.

    >>> print(markdown_table(["learner", "gain"], [["MAML", "1.5"]]), end="")
    | learner | gain |
    | --- | --- |
    | MAML | 1.5 |
    """
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
