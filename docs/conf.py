"""The documentation as a site: ``make docs`` builds it into docs/_build/html."""

from django_vtqueue import __version__

project = "django-vtqueue"
author = "the authors of django-vtqueue"
version = release = __version__

extensions = ["myst_parser", "sphinx_copybutton", "sphinxcontrib.mermaid"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_fence_as_directive = ["mermaid"]  # as GitHub draws them
myst_heading_anchors = 4  # links to headings are written as on GitHub: page.md#heading
exclude_patterns = ["_build", "prose", "screenshots"]
suppress_warnings = ["misc.highlighting_failure"]  # JSON with an ellipsis, console with output

html_theme = "furo"
html_title = f"django-vtqueue {version}"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = "$ "
html_theme_options = {"source_view_link": "", "navigation_with_keys": True}
