/* Refreshes the overview from the same address, and changes only what differs: focus, selection, scrolling and open
   parts stay. Without it the page is the same, as of when it was loaded. */
"use strict";
{
    const overview = document.getElementById("vtq-overview");
    const controls = document.getElementById("vtq-refreshing");
    const button = controls.querySelector("button");
    const status = controls.querySelector("[role=status]");
    const pause = overview.dataset.seconds * 1000;
    const SLOWEST = 60000; // milliseconds between two tries while the server does not answer
    let paused = false, failures = 0, timer = null, loading = null;

    function say(what) {
        const text = what ? status.dataset[what] : "";
        if (status.textContent !== text) {
            status.textContent = text;
        }
        overview.classList.toggle("vtq-stale", what === "stale");
    }

    /* Children with a data-key or an id are the same as before if that is; the others, if they come in its place. */
    function keyOf(node) {
        return node.nodeType === Node.ELEMENT_NODE ? node.dataset.key || node.id : "";
    }

    function update(old, fresh) {
        if (old.isEqualNode(fresh)) {
            return;
        }
        if (old.nodeType !== Node.ELEMENT_NODE) {
            old.nodeValue = fresh.nodeValue;
            return;
        }
        for (const name of old.getAttributeNames()) {
            if (!fresh.hasAttribute(name) && name !== "open") {
                old.removeAttribute(name);
            }
        }
        for (const name of fresh.getAttributeNames()) {
            if (old.getAttribute(name) !== fresh.getAttribute(name)) {
                old.setAttribute(name, fresh.getAttribute(name));
            }
        }
        updateChildren(old, fresh);
    }

    function updateChildren(old, fresh) {
        const keyed = new Map([...old.childNodes].filter(keyOf).map((node) => [keyOf(node), node]));
        let place = old.firstChild;
        for (const wanted of [...fresh.childNodes]) {
            const key = keyOf(wanted);
            let match = key ? keyed.get(key) : place;
            if (match && (keyOf(match) !== key || match.nodeName !== wanted.nodeName)) {
                match = null;
            }
            if (!match) {
                old.insertBefore(document.importNode(wanted, true), place);
                continue;
            }
            if (match === place) {
                place = place.nextSibling;
            } else {
                old.insertBefore(match, place);
            }
            update(match, wanted);
        }
        while (place) {
            const next = place.nextSibling;
            place.remove();
            place = next;
        }
    }

    /* Whoever is about to decide something must not have it change under the hand. */
    function formIsOpen() {
        return overview.querySelector("details.vtq-form[open]") !== null;
    }

    async function load() {
        loading = new AbortController();
        const overdue = setTimeout(() => loading.abort(), SLOWEST);
        try {
            const response = await fetch(window.location.href, {
                credentials: "same-origin", redirect: "error", signal: loading.signal,
            });
            if (!response.ok) {
                throw new Error(response.status);
            }
            const page = new DOMParser().parseFromString(await response.text(), "text/html");
            return page.getElementById("vtq-overview");
        } finally {
            clearTimeout(overdue);
            loading = null;
        }
    }

    async function refresh() {
        timer = null;
        if (paused || document.hidden || formIsOpen()) {
            return;
        }
        try {
            const fresh = await load();
            if (fresh && !paused && !formIsOpen()) {
                updateChildren(overview, fresh);
            }
            failures = fresh ? 0 : failures + 1;
        } catch {
            failures += 1;
        }
        follow();
    }

    /* Says how it stands, and lets the next refresh come. */
    function follow() {
        clearTimeout(timer);
        timer = null;
        if (paused || formIsOpen()) {
            say(paused ? "paused" : "form");
            return;
        }
        say(failures ? "stale" : "");
        if (!document.hidden && !loading) {
            timer = setTimeout(refresh, Math.min(pause * 2 ** failures, SLOWEST));
        }
    }

    button.addEventListener("click", () => {
        paused = !paused;
        button.textContent = paused ? button.dataset.goOn : button.dataset.pause;
        follow();
    });
    overview.addEventListener("toggle", follow, true);
    document.addEventListener("visibilitychange", () => {
        if (!document.hidden && !loading) {
            refresh().then(follow);
        }
    });
    controls.hidden = false;
    follow();
}
