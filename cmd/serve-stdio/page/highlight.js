/* SPDX-License-Identifier: Apache-2.0 */
/* highlight.js - colours for code: comments, texts, numbers and the keywords that most languages share. */
import { el } from './dom.js';

const families = [ /* languages, and how their comments begin */
  [/^(c|h|cpp|c\+\+|cc|cu|cuda|java|js|javascript|jsx|ts|typescript|tsx|rust|rs|go|cs|csharp|swift|kotlin|php|scala|dart|zig|json|css)$/,
   '\\/\\/[^\\n]*|\\/\\*[^]*?(?:\\*\\/|$)'],
  [/^(py|python|sh|bash|zsh|shell|console|rb|ruby|yaml|yml|toml|perl|r|make|makefile|dockerfile|ini|julia|awk)$/, '#[^\\n]*'],
  [/^(sql|lua|haskell|hs|ada|vhdl)$/, '--[^\\n]*']
];

const keywords = new Set(('abstract and as assert async await auto begin bool boolean break case catch char class const continue def default ' +
  'del delete do done double elif else elseif end enum except export extends extern false fi final finally float fn for from func ' +
  'function global if impl implements import in include inline int interface is lambda let local long loop match mod module mut ' +
  'namespace new nil none not null of operator or override package pass private protected pub public raise register return select ' +
  'self short signed sizeof static string struct super switch template then this throw throws trait true try type typedef typeof ' +
  'union unsigned until use using var virtual void volatile where while with yield ' +
  'from where insert into values update set create table join on group by order limit').split(' '));

/* The nodes of a code block's text. */
export function highlightCode(text, language) {
  const family = families.find(([names]) => names.test(language.toLowerCase()));
  if (!family || text.length > 50000) return [text];
  const pattern = new RegExp(`(${family[1]})|("(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'?|\`(?:\\\\.|[^\`\\\\])*\`?)|` +
                             '\\b(\\d[\\w.]*)|([A-Za-z_]\\w*)', 'g');
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(pattern)) {
    const [word, comment, string, number] = match;
    const kind = comment ? 'comment' : string ? 'string' : number ? 'number' : keywords.has(word) ? 'keyword' : null;
    if (!kind) continue;
    nodes.push(text.slice(from, match.index), el('span', { className: 'is-' + kind }, word));
    from = match.index + word.length;
  }
  return [...nodes, text.slice(from)];
}
