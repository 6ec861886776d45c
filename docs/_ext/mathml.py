"""Equations as MathML, which browsers draw by themselves: docutils translates them, and no script is loaded."""

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number


def inline(writer, node: nodes.math) -> None:
    """Write an equation of a sentence."""
    writer.body.append(_mathml(node))
    raise nodes.SkipNode


def block(writer, node: nodes.math_block) -> None:
    """Write an equation of its own, with the number that a label gives it."""
    number = f'<span class="eqno">({get_node_equation_number(writer, node)})</span>' if node['number'] else ''
    writer.body.append(f'<div class="math">{number}{_mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def _mathml(node: nodes.Node, as_block: bool = False) -> str:
    try:
        return tex2mathml(node.astext(), as_block)
    except MathError as error:
        logging.getLogger(__name__).warning('equation: %s', error, location=node)
        return ''


def setup(app: Sphinx) -> dict:
    """Add the renderer."""
    app.add_html_math_renderer('mathml', (inline, None), (block, None))
    return dict(parallel_read_safe=True, parallel_write_safe=True)
