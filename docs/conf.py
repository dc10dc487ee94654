"""Settings of the documentation: ``make docs`` builds it, with warnings as errors."""

import os
import warnings

import tailproof

project = "tailproof"
author = copyright = "The tailproof developers"
version = release = tailproof.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # formulas need no other server
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
html_theme = "pydata_sphinx_theme"
html_theme_options = {
    "github_url": "https://github.com/tailproof/tailproof",
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "article_header_start": ["breadcrumbs"],
    "secondary_sidebar_items": ["page-toc"],
}
toc_object_entries_show_parents = "hide"  # whose names would run out of the column
html_title = f"tailproof {version}"
html_static_path = ["_static"]
html_css_files = ["narrow.css"]
html_show_sourcelink = False
html_sidebars = {page: [] for page in ("quickstart", "command_line")}  # pages without others below them
templates_path = ["_templates"]
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
# What scikit-learn adds to every estimator has its own documentation.
_SKLEARN = "score, set_fit_request, set_partial_fit_request, set_score_request, get_metadata_routing"
autodoc_default_options = {"members": True, "exclude-members": _SKLEARN}
autodoc_typehints = "none"
autosummary_generate = True
exclude_patterns = ["_build", "gallery/*.py", "gallery/*.ipynb", "gallery/*.zip"]
html_extra_path = ["demo.svg"]
sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "abort_on_example_error": True,
    "within_subsection_order": "ExampleTitleSortKey",
    "remove_config_comments": True,
}
os.environ.setdefault("OMP_NUM_THREADS", "2")
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")
