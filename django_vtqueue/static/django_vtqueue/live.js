/* Refreshes a part of a page (data-seconds: how often) from the same address, and changes only what differs: focus,
   selection, scrolling, open parts, and what was typed or ticked stay. Without it the page is the same, as of when it was
   loaded. */
"use strict";
{
    const live = document.querySelector("[data-seconds]");
    const controls = document.getElementById("vtq-refreshing");
    const button = controls.querySelector("button");
    const status = controls.querySelector("[role=status]");
    const SLOWEST = 60000; // milliseconds between two tries while the server does not answer
    const SAME = Symbol("the page shows this already");
    let paused = false, failures = 0, timer = null, loading = null, version = "", offered = "";

    function say(what) {
        const text = what ? status.dataset[what] : "";
        if (status.textContent !== text) {
            status.textContent = text;
        }
        live.classList.toggle("vtq-stale", what === "stale");
    }

    /* Children with a data-key, an id, or a box to tick are the same as before if that is; the others, if they come in
       its place. */
    function keyOf(node) {
        if (node.nodeType !== Node.ELEMENT_NODE) {
            return "";
        }
        const box = node.nodeName === "TR" ? node.querySelector("input.action-select") : null;
        return node.dataset.key || node.id || (box ? box.value : "");
    }

    /* What people type into, choose or tick is theirs, with what Django's script says of it. */
    function isTheirs(node) {
        return node.matches("input:not([type=hidden]), select, textarea, .actions");
    }

    function update(old, fresh) {
        if (old.isEqualNode(fresh)) {
            return;
        }
        if (old.nodeType !== Node.ELEMENT_NODE) {
            old.nodeValue = fresh.nodeValue;
            return;
        }
        if (isTheirs(old) && isTheirs(fresh) && old.name === fresh.name) {
            return;
        }
        const kept = old.classList.contains("selected") ? ["open", "class"] : ["open"];
        for (const name of old.getAttributeNames()) {
            if (!fresh.hasAttribute(name) && !kept.includes(name)) {
                old.removeAttribute(name);
            }
        }
        for (const name of fresh.getAttributeNames()) {
            if (old.getAttribute(name) !== fresh.getAttribute(name) && !kept.includes(name)) {
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

    /* A page does not change while its user is about to decide something. */
    function formIsOpen() {
        return live.querySelector("details.vtq-form[open]") !== null;
    }

    async function load() {
        loading = new AbortController();
        const overdue = setTimeout(() => loading.abort(), SLOWEST);
        try {
            const response = await fetch(window.location.href, {
                credentials: "same-origin", headers: {"X-Requested-With": "fetch", "If-None-Match": version},
                signal: loading.signal,
            });
            if (response.status === 304) {
                return SAME;
            }
            const page = new DOMParser().parseFromString(await response.text(), "text/html");
            const fresh = page.querySelector("[data-seconds]");
            if (fresh && (response.redirected || response.status === 404)) {
                window.location.reload(); // it is elsewhere now, or gone: the page there says so
            }
            offered = response.headers.get("ETag") || "";
            return response.ok && !response.redirected ? fresh : null;
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
            if (fresh && fresh !== SAME && !paused && !formIsOpen()) {
                updateChildren(live, fresh);
                version = offered;
                live.dataset.seconds = fresh.dataset.seconds;
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
        const pause = live.dataset.seconds * 1000;
        controls.hidden = !pause; // nothing can change any more
        if (pause && !document.hidden && !loading) {
            timer = setTimeout(refresh, Math.min(pause * 2 ** failures, SLOWEST));
        }
    }

    button.addEventListener("click", () => {
        paused = !paused;
        button.textContent = paused ? button.dataset.goOn : button.dataset.pause;
        follow();
    });
    live.addEventListener("toggle", follow, true);
    document.addEventListener("visibilitychange", () => {
        if (!document.hidden && !loading && Number(live.dataset.seconds)) {
            refresh().then(follow);
        }
    });
    follow();
}
