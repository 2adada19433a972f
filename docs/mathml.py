"""Formulas of the site as MathML, which browsers draw themselves: no script, no network."""

import re

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.util import logging

logger = logging.getLogger(__name__)


def formula(self, node, as_block):
    source = node.astext()
    if as_block and r"\\" in source and r"\begin" not in source:
        source = rf"\begin{{aligned}}{source}\end{{aligned}}"
    try:
        return latex2mathml.tex2mathml(re.sub(r"\s+", " ", source), as_block=as_block)
    except Exception as error:
        logger.warning("formula not understood: %s (%s)", source, error, location=node)
        return self.encode(source)


def visit_inline(self, node):
    self.body.append(formula(self, node, as_block=False))
    raise nodes.SkipNode


def visit_block(self, node):
    self.body.append(f'<div class="formula">{formula(self, node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
