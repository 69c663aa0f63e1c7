// At most so many words a sentence. Code, links and numbers count as one word each; tables are not looked at.
const { StringSource } = require("textlint-util-to-string");
const { split } = require("sentence-splitter");

module.exports = (context, { words = 25 } = {}) => {
    const { Syntax, RuleError, report, locator } = context;
    const check = (node) => {
        const source = new StringSource(node, {
            replacer: ({ node, maskValue }) => (node.type === Syntax.Code ? maskValue("c") : undefined),
        });
        for (const sentence of split(source.toString())) {
            if (sentence.type !== "Sentence") continue;
            const found = sentence.raw.split(/\s+/).filter((word) => /\w/.test(word));
            if (found.length > words) {
                const index = source.originalIndexFromIndex(sentence.range[0]) ?? 0;
                const start = found.slice(0, 6).join(" ");
                report(node, new RuleError(`${found.length} words, at most ${words}: "${start} …"`, { padding: locator.at(index) }));
            }
        }
    };
    return { [Syntax.Paragraph]: check };
};
