"""What the template of the app's first page in the admin asks for.

Django imports the tags of every app, also where the admin is not installed.
"""

from typing import Any

from django import template

register = template.Library()


@register.inclusion_tag("vtqueue/overview.html", takes_context=True)
def vtqueue_overview(context: template.Context) -> dict[str, Any]:
    """Show the queues and the workers, as far as the user may see them."""
    from ..admin.overview import overview

    return overview(context["request"], context["app_list"])
