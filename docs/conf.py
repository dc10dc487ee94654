"""Settings of the documentation: ``make docs`` builds it, with warnings as errors."""

import tailproof

project = "tailproof"
author = copyright = "The tailproof developers"
version = release = tailproof.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
]
html_theme = "alabaster"
html_theme_options = {
    "description": "Learning under heavy tails",
    "page_width": "1080px",
    "sidebar_width": "230px",
    "body_max_width": "auto",
}
# The contents of the page beside it: that of the API is long.
html_sidebars = {"**": ["about.html", "searchfield.html", "navigation.html", "localtoc.html"]}
html_title = "tailproof"
numpydoc_class_members_toctree = False
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
# What scikit-learn adds to every estimator has its own documentation.
_SKLEARN = "score, set_fit_request, set_partial_fit_request, set_score_request, get_metadata_routing"
autodoc_default_options = {"members": True, "exclude-members": _SKLEARN}
autodoc_typehints = "none"
autosummary_generate = False
numpydoc_show_class_members = False
exclude_patterns = ["_build"]
html_extra_path = ["demo.svg"]
