"""What a notebook shows of a result: its repr, a small table or its figure, and it in words."""

import base64
import io
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROWS = 6


class ShownInNotebooks:
    """A result that a notebook shows by what it has: ``plot()`` or rows, and ``summary()``."""

    def _rows(self) -> Iterable[Mapping[str, Any]]:
        """Rows of a small table, of values by column; of many, the first are shown."""
        return ()

    def _repr_html_(self) -> str:
        parts = [f"<strong>{escape(repr(self))}</strong>"]
        if rows := list(islice(self._rows(), _ROWS + 1)):
            lines = [_line("th", rows[0]), *(_line("td", row.values()) for row in rows[:_ROWS])]
            more = _line("td", "…" * len(rows[0])) if len(rows) > _ROWS else ""
            parts.append(f"<table>{''.join(lines)}{more}</table>")
        if plot := getattr(self, "plot", None):
            parts.append(plot()._repr_html_())
        if summary := getattr(self, "summary", None):
            parts.append(f'<p style="white-space: pre-line">{escape(summary())}</p>')
        return "\n".join(parts)


def _line(tag: str, values: Iterable[Any]) -> str:
    style = ' style="text-align: left"'
    return f"<tr>{''.join(f'<{tag}{style}>{escape(str(v))}</{tag}>' for v in values)}</tr>"


@cache
def _figure_class() -> type["Figure"]:
    """Figures that a notebook shows by themselves, whatever it was told of matplotlib."""
    from matplotlib.figure import Figure

    class ShownFigure(Figure):
        def _repr_html_(self) -> str:
            drawn = io.BytesIO()
            self.savefig(drawn, format="png", dpi=100)
            data = base64.b64encode(drawn.getvalue()).decode("ascii")
            return f'<img alt="" src="data:image/png;base64,{data}">'

    return ShownFigure


def shown_figure(width: float, height: float) -> "Figure":
    """A figure of so many inches that a notebook shows."""
    return _figure_class()(figsize=(width, height), layout="constrained")
