"""A content security policy that allows nothing inline: no script, no style, no handler in an attribute.

And an answer to the browser's question for the icon of the site, of which the pages say nothing.
"""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

POLICY = "default-src 'self'"
ICON = "/favicon.ico"


def strict(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    def respond(request: HttpRequest) -> HttpResponse:
        response = HttpResponse(status=204) if request.path == ICON else get_response(request)
        response["Content-Security-Policy"] = POLICY
        return response

    return respond
