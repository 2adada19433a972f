"""How the documentation site is built: ``make docs``."""

import importlib
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

from numpy.typing import ArrayLike  # noqa: E402
from sphinx.util.typing import stringify_annotation  # noqa: E402

import taskscape  # noqa: E402

project = "taskscape"
author = "The taskscape authors"
copyright = "the taskscape authors, MIT licence"
release = version = taskscape.__version__

extensions = [
    "myst_nb",  # Markdown by myst_parser, and the notebooks of the gallery
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "mathml",
]
exclude_patterns = ["_build", "results/**"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # `make gallery` runs the notebooks, and the tests do

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
maximum_signature_line_length = 88
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

copybutton_prompt_text = "$ "

html_theme = "furo"
html_title = "taskscape"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_show_sphinx = False

BESIDE = {"../CONTRIBUTING.md": "contributing.md", "../CHANGELOG.md": "changelog.md"}
"""Pages of the repository that are also pages of the site."""


def link_pages_beside(app, name, text):
    for path, page in BESIDE.items():
        text[0] = text[0].replace(f"]({path}", f"]({page}")


def drop_what_says_nothing(app, what, name, value, options, lines):
    """What Python writes for the fields of a named tuple."""
    lines[:] = [line for line in lines if not line.startswith("Alias for field number")]


def leave_out(app, what, name, value, skip, options):
    """Methods that scikit-learn adds, whose docstrings link to its own pages."""
    return True if name.startswith("set_") and name.endswith("_request") else None


ARRAY_LIKE = stringify_annotation(ArrayLike, "smart")


def say_it_shortly(app, what, name, value, options, signature, returns):
    """NumPy's alias spelt out takes three lines; a default that is no Python breaks the layout."""

    def short(text):
        return text and text.replace(ARRAY_LIKE, "ArrayLike").replace("<factory>", "...")

    return short(signature), short(returns)


def setup(app):
    reference = importlib.import_module("reference")
    app.connect("builder-inited", lambda app: reference.write(DOCS / "generated"))
    app.connect("autodoc-process-docstring", drop_what_says_nothing)
    app.connect("autodoc-skip-member", leave_out)
    app.connect("autodoc-process-signature", say_it_shortly)
    app.connect("source-read", link_pages_beside)
