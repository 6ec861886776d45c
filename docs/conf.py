"""The documentation site, for `make docs`. Its source folder is the repository, so links of files are the site's."""

import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / 'docs'), str(ROOT / 'docs' / '_ext'), str(ROOT / 'tests')]
warnings.filterwarnings('ignore')  # of the libraries; Sphinx has its own

from repository import repository  # noqa: E402

from mmlape import __version__  # noqa: E402

project = 'mmlape'
author = copyright = 'The mmlape authors'
version = release = __version__

root_doc = 'docs/index'
include_patterns = [
    'docs/**',
    'configs/*.md',
    'configs/**/*.md',
    'studies/*.md',
    'C*.md',
    'GOVERNANCE.md',
    'SECURITY.md',
]
exclude_patterns = [
    'configs/README.md',
    'build',
    'data',
    'dist',
    'mutants',
    'work_dirs',
    '.*',
    '**/.ipynb_checkpoints',
]

extensions = [
    'myst_nb',
    'sphinx.ext.autodoc',
    'sphinx.ext.napoleon',
    'sphinx_copybutton',
    'sphinx_design',
    'mathml',
    'outputs',
    'pages',
]
myst_enable_extensions = ['colon_fence', 'deflist', 'dollarmath', 'fieldlist']
myst_heading_anchors = 4
nb_execution_mode = 'force'
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_execution_timeout = 600  # of a cell; seconds, unless the machine is busy
nb_output_stderr = 'remove'  # warnings of libraries, with paths of the machine
copybutton_exclude = '.linenos, .gp, .go'

smartquotes = False  # options begin with two hyphens, which it would make a dash
default_role = 'literal'  # docstrings write `name` for code
add_module_names = False
autodoc_member_order = 'bysource'
autodoc_typehints_format = 'short'
maximum_signature_line_length = 80
toc_object_entries = False

html_theme = 'furo'
if address := repository(ROOT):
    html_theme_options = dict(announcement=f'<a class="repository" href="{address}">{address[8:]}</a>')
html_title = f'mmlape {version}'
html_favicon = '_static/icon.svg'
html_static_path = ['_static']
html_css_files = ['site.css']
html_js_files = [('catalogue.js', {'defer': 'defer'})]
html_additional_pages = {'index': 'start.html'}
templates_path = ['_templates']
html_copy_source = False
html_math_renderer = 'mathml'
pygments_style = 'friendly'
pygments_dark_style = 'github-dark'
