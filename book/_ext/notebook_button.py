"""A chapter's page gets the Colab button of its notebook: front matter ``notebook: <slug>``."""

from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError


def notebook_address(options: dict, slug: str) -> str:
    """Colab's address of ``notebooks/<slug>.ipynb`` in the repository that ``_config.yml`` names."""
    repository = options["repository_url"].rstrip("/")
    if not repository.startswith("https://github.com/"):
        raise ExtensionError(f"repository.url in _config.yml: {repository!r}; Colab opens only https://github.com/…")
    path = repository.removeprefix("https://github.com/")
    colab = options["launch_buttons"]["colab_url"].rstrip("/")
    return f"{colab}/github/{path}/blob/{options['repository_branch']}/notebooks/{slug}.ipynb"


def add_button(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """Add the button to the header of a page whose front matter names a notebook."""
    slug = app.env.metadata.get(page, {}).get("notebook")
    if not slug:
        return
    if not (Path(app.srcdir) / "notebooks" / f"{slug}.ipynb").is_file():
        raise ExtensionError(f"{page}: front matter says notebook: {slug}, but notebooks/{slug}.ipynb does not exist")
    button = {
        "type": "link",
        "text": "Colab",
        "tooltip": "Open this chapter's notebook in Colab",
        "icon": "_static/images/logo_colab.png",
        "url": notebook_address(app.config.html_theme_options, slug),
    }
    launch = {"type": "group", "tooltip": "Launch interactive content", "icon": "fas fa-rocket",
              "label": "launch-buttons", "buttons": [button]}
    context["header_buttons"].insert(0, launch)


def setup(app: Sphinx) -> dict:
    app.connect("html-page-context", add_button, priority=502)  # after the theme's own, which run at 501 and before
    return {"parallel_read_safe": True, "parallel_write_safe": True}
