/* SPDX-License-Identifier: Apache-2.0 */
/* markdown.js - an answer's Markdown as elements. The tokens of marked's lexer become nodes one by one: no HTML of the
 * model is ever read, and links lead to http, https and mailto alone. */
import { Lexer } from './marked.js';
import { copyText, el, icon } from './dom.js';
import { highlightCode } from './highlight.js';

const entities = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0', copy: '©', reg: '®', trade: '™',
                   hellip: '…', mdash: '—', ndash: '–', rarr: '→', larr: '←', times: '×', middot: '·', deg: '°' };

function decodeEntities(text) {
  return text.replace(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|([a-z]+));/gi, (whole, decimal, hex, name) => {
    if (name) return Object.hasOwn(entities, name) ? entities[name] : whole;
    const code = decimal ? Number(decimal) : parseInt(hex, 16);
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : '\ufffd';
  });
}

/* The address of a link that may be followed, else null. */
function safeAddress(href) {
  try {
    const url = new URL(decodeEntities(href));
    return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : null;
  } catch {
    return null; /* relative, which means nothing in an answer */
  }
}

function buildLink(token, children) {
  const href = safeAddress(token.href);
  if (href === null) return el('span', { title: token.href }, ...children);
  return el('a', { href, title: href, target: '_blank', rel: 'noopener noreferrer nofollow' }, ...children);
}

const buildAll = tokens => (tokens || []).map(buildNode);

function buildCode(token) {
  const language = (token.lang || '').match(/^[^\s{]*/)[0];
  const copy = el('button', { type: 'button', className: 'copy', onclick: () => copyText(token.text) },
                  icon('copy'), el('span', {}, 'Copy'));
  return el('figure', { className: 'code' },
            el('figcaption', {}, el('span', { className: 'language' }, language || 'text'), copy),
            el('pre', { tabIndex: 0, 'aria-label': 'Code' + (language ? ', ' + language : '') },
               el('code', {}, ...highlightCode(token.text, language))));
}

function buildTable(token) {
  const row = (cells, tag) => el('tr', {}, ...cells.map(cell =>
    el(tag, { className: cell.align || '', ...(tag === 'th' ? { scope: 'col' } : {}) }, ...buildAll(cell.tokens))));
  return el('div', { className: 'table', tabIndex: 0, role: 'region', 'aria-label': 'Table' },
            el('table', {}, el('thead', {}, row(token.header, 'th')),
               el('tbody', {}, ...token.rows.map(cells => row(cells, 'td')))));
}

function buildList(token) {
  const items = token.items.map(item => el('li', item.task ? { className: 'task' } : {}, ...buildAll(item.tokens)));
  return token.ordered ? el('ol', { start: Number(token.start) || 1 }, ...items) : el('ul', {}, ...items);
}

const builders = {
  code: buildCode,
  table: buildTable,
  list: buildList,
  heading: t => el('h' + Math.min(t.depth + 2, 6), { className: 'h' + t.depth }, ...buildAll(t.tokens)),
  paragraph: t => el('p', {}, ...buildAll(t.tokens)),
  blockquote: t => el('blockquote', {}, ...buildAll(t.tokens)),
  hr: () => el('hr'),
  br: () => el('br'),
  strong: t => el('strong', {}, ...buildAll(t.tokens)),
  em: t => el('em', {}, ...buildAll(t.tokens)),
  del: t => el('del', {}, ...buildAll(t.tokens)),
  codespan: t => el('code', {}, t.text),
  link: t => buildLink(t, buildAll(t.tokens)),
  image: t => buildLink(t, ['Image: ' + (t.text || t.href)]), /* nothing is loaded from elsewhere */
  checkbox: t => el('input', { type: 'checkbox', checked: t.checked, disabled: true }),
  escape: t => document.createTextNode(t.text),
  html: t => /^<br\s*\/?>$/i.test(t.raw.trim()) ? el('br') : el(t.block ? 'p' : 'span', {}, t.raw),
  text: t => t.tokens ? el('span', {}, ...buildAll(t.tokens)) : document.createTextNode(decodeEntities(t.text))
};

function buildNode(token) {
  return builders[token.type] ? builders[token.type](token) : document.createTextNode(token.raw);
}

const shown = new WeakMap(); /* a box: the source of each of its blocks */

/* Shows text in a box. Blocks that have not changed stay, so that what is marked or scrolled there stays, too. */
export function showMarkdown(box, text) {
  const sources = shown.get(box) || [];
  let tokens, same = 0;
  try {
    tokens = Lexer.lex(text).filter(token => token.type !== 'space' && token.type !== 'def');
    while (same < tokens.length && same < sources.length && sources[same] === tokens[same].raw) same++;
    const fresh = tokens.slice(same).map(buildNode);
    while (box.childNodes.length > same) box.lastChild.remove();
    box.append(...fresh);
    shown.set(box, tokens.map(token => token.raw));
  } catch { /* nested too deeply to be read */
    shown.delete(box);
    box.replaceChildren(el('p', { className: 'plain' }, text));
  }
}
