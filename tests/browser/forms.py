"""What the forms of a page would send, so that another user can send it."""

from dataclasses import dataclass
from typing import Any

from playwright.sync_api import Page

from .pages import Found

# Each form that can be sent, with all that can be ticked, the actions that a list offers, and its named buttons. (A
# field called "action" hides the form's own address, so that is read from the attribute.)
FORMS = """([html, address]) => {
    const page = new DOMParser().parseFromString(html, 'text/html');
    const forms = [...page.querySelectorAll('#content form[method=post]')];
    const boxes = form => [...form.querySelectorAll('[type=checkbox]')].map(box => [box.name, box.value]);
    return forms.filter(form => form.querySelector('button:not([type=button]), [type=submit]')).map(form => ({
        url: new URL(form.getAttribute('action') ?? '', address).href,
        fields: [...new FormData(form), ...boxes(form)],
        actions: [...form.querySelectorAll('select[name=action] option')].map(option => option.value).filter(Boolean),
        buttons: [...form.querySelectorAll('[type=submit][name]')].map(button => [button.name, button.value]),
    }));
}"""


@dataclass(frozen=True)
class Post:
    """A request that changes something."""

    url: str
    fields: dict[str, str]

    def send(self, page: Page) -> int:
        """Send it from the window of a person who has no form for it; return the status of the answer."""
        [token] = [each["value"] for each in page.context.cookies() if each.get("name") == "csrftoken"]
        return page.context.request.post(self.url, form=self.fields, headers={"X-CSRFToken": str(token)}).status


def posts(page: Page, found: Found) -> list[Post]:
    """Return what can be sent from a page; ``page``: any window, whose parser is used."""
    return [post for form in page.evaluate(FORMS, [found.html, found.url]) for post in posts_of(form)]


def posts_of(form: dict[str, Any]) -> list[Post]:
    fields = {name: value for name, value in form["fields"] if name and name != "csrfmiddlewaretoken"}
    if form["actions"]:
        return [Post(form["url"], {**fields, "action": action, "index": "0"}) for action in form["actions"]]
    return [Post(form["url"], {**fields, name: value}) for name, value in form["buttons"]] or [
        Post(form["url"], fields)
    ]
