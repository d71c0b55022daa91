"""How Sphinx builds the site (``make docs``). Its pages are the repository's own, each where a forge shows it."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))
import gallery_reports  # noqa: E402

project = "dort-compare"
author = "the authors of dort-compare"
release = installed("dort-compare")

root_doc = "docs/index"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**", "benchmarks/**.md"]
exclude_patterns = [".venv", "build"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_use_ivar = True
python_maximum_signature_line_length = 100
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

html_theme = "furo"
html_title = "dort-compare"
html_extra_path = ["root"]
html_static_path = ["static"]
html_css_files = ["widths.css"]
html_show_sourcelink = False
html_copy_source = False
html_show_copyright = False


def setup(app: Sphinx) -> None:
    """The reports to which the gallery's pages link are made by the commands that stand on them."""
    app.connect("doctree-read", gallery_reports.link)
    app.connect("build-finished", gallery_reports.write)
