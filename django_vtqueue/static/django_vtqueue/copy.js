/* The buttons that copy what stands beside them. Without this script there are none: nothing but copying needs it. */
"use strict";
{
    const SHOWN = 2000; // milliseconds for which a button says that it has copied

    /* Pages without HTTPS have no navigator.clipboard. */
    async function copy(text) {
        if (navigator.clipboard) {
            return navigator.clipboard.writeText(text);
        }
        const area = document.createElement("textarea");
        area.value = text;
        document.body.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
    }

    document.documentElement.classList.add("vtq-copies");
    document.addEventListener("click", async (event) => {
        const button = event.target.closest(".vtq-copy");
        if (!button) {
            return;
        }
        const parts = button.closest(".vtq-copyable").querySelectorAll("pre, code");
        await copy([...parts].map((part) => part.textContent).join("\n"));
        const label = button.textContent;
        if (label !== button.dataset.done) {
            button.textContent = button.dataset.done;
            setTimeout(() => { button.textContent = label; }, SHOWN);
        }
    });
}
