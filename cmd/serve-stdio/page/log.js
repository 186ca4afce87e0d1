/* SPDX-License-Identifier: Apache-2.0 */
/* log.js - the messages of the open conversation. */
import { $, announce, copyText, el, icon, iconButton, sizeText } from './dom.js';
import { showMarkdown } from './markdown.js';
import { runs } from './answer.js';
import { branchOf, chooseNode, siblingsOf } from './talk.js';

const views = new Map(); /* the elements of each message that is shown, by its place */
let due = 0;             /* the timer of the next drawing of an answer that grows */

const log = () => $('log');
const atEnd = () => log().scrollHeight - log().scrollTop - log().clientHeight < 60;

export function scrollToEnd() {
  log().scrollTop = log().scrollHeight;
}

/* Does what changes the heights; the end stays in view if it was, else the place. */
export function keepPlace(change) {
  const end = atEnd(), top = log().scrollTop;
  change();
  if (end) scrollToEnd();
  else log().scrollTop = top;
  drawDown();
}

function seconds(ms) {
  return ms < 10000 ? (ms / 1000).toFixed(1) + ' s' : Math.round(ms / 1000) + ' s';
}

/* ---- an answer ---- */

const endings = { stopped: 'Stopped', length: 'Cut off at the limit of tokens', broken: 'Interrupted',
                  empty: 'The model ended without an answer' };

function figuresOf(node) {
  const n = node.usage?.completion_tokens ?? node.parts ?? 0, parts = [];
  if (n) parts.push(`${n} tokens`);
  if (n > 1 && node.ms >= 50) parts.push(`${((n - 1) * 1000 / node.ms).toFixed(n * 1000 > node.ms * 10 ? 0 : 1)} tokens/s`);
  if (node.usage) {
    const cached = node.usage.prompt_tokens_details?.cached_tokens;
    parts.push(`prompt ${node.usage.prompt_tokens}` + (cached ? ` (${cached} cached)` : ''));
  }
  return parts.join(' · ');
}

function drawThought(view, node, running) {
  view.thought.hidden = !node.reasoning_content;
  if (!node.reasoning_content) return;
  const thinking = running && !node.content && !node.tool_calls;
  view.thought.classList.toggle('busy', thinking);
  view.thought.firstChild.lastChild.textContent = thinking ? 'Thinking' : 'Thought' +
    (node.thought_ms ? ' for ' + seconds(node.thought_ms) : '');
  if (view.thought.open || !thinking) showMarkdown(view.thought.lastChild, node.reasoning_content);
}

function drawAnswer(view, talk, place) {
  const node = talk.nodes[place], running = runs.get(talk)?.place === place;
  const empty = node.ended === 'stop' && !node.content.trim() && !node.tool_calls;
  const ended = running ? '' : empty ? 'empty' : node.ended || 'broken';
  drawThought(view, node, running);
  showMarkdown(view.body, node.content);
  view.calls.replaceChildren(...(node.tool_calls || []).map(call =>
    el('div', { className: 'call' }, el('b', {}, call.function.name), ' ' + call.function.arguments)));
  view.box.classList.toggle('waits', running && !node.parts);
  view.box.classList.toggle('grows', running);
  view.box.setAttribute('aria-busy', running);
  view.end.hidden = !endings[ended];
  view.end.textContent = (endings[ended] || '') + (ended === 'broken' && node.reason ? ': ' + node.reason : '');
  view.figures.textContent = figuresOf(node);
  view.thumbs.hidden = running || !node.reply || !view.rated();
}

/* ---- a message ---- */

function buildFiles(node) {
  return el('ul', { className: 'files', 'aria-label': 'Files' }, ...(node.files || []).map(file =>
    el('li', {}, el('details', {}, el('summary', {}, icon('clip'), file.name + ', ' + sizeText(file.text.length)),
                    el('pre', { tabIndex: 0 }, file.text)))));
}

function buildVersions(talk, place, handlers) {
  const all = siblingsOf(talk, place), at = all.indexOf(place);
  if (all.length < 2) return null;
  const go = step => iconButton(step < 0 ? 'left' : 'right', step < 0 ? 'Version before' : 'Next version', () => {
    chooseNode(talk, all[at + step]);
    handlers.changed(talk);
    drawTalk(talk, handlers);
    views.get(all[at + step])?.box.querySelector('.versions button:enabled')?.focus();
    announce(`Version ${at + step + 1} of ${all.length}`);
  });
  const back = go(-1), on = go(1);
  back.disabled = at === 0;
  on.disabled = at === all.length - 1;
  return el('span', { className: 'versions' }, back, `${at + 1} / ${all.length}`, on);
}

export function openEditor(talk, place, text, handlers) {
  const view = views.get(place), area = el('textarea', { value: text, rows: Math.min(12, text.split('\n').length + 1),
                                                         'aria-label': 'Edit the message' });
  const close = () => { drawTalk(talk, handlers); views.get(place)?.edit?.focus(); };
  const send = () => { if (area.value.trim()) handlers.edit(place, area.value); };
  const form = el('div', { className: 'editor' }, area, el('div', {},
    el('button', { type: 'button', onclick: close }, 'Cancel'),
    el('button', { type: 'button', className: 'strong', onclick: send }, 'Send')));
  area.addEventListener('keydown', event => {
    if (event.key === 'Escape') { event.stopPropagation(); close(); }
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
  });
  view.box.classList.add('edited');
  view.body.replaceWith(form);
  area.focus();
}

/* The field for what the answer should have been; it may stay empty. */
function openBetter(talk, place, handlers) {
  const view = views.get(place), area = el('textarea', { rows: 3, 'aria-label': 'What the answer should have been',
                                                         placeholder: 'What should the answer have been?' });
  if (view.better) return view.better.querySelector('textarea').focus();
  const close = () => { view.better.remove(); view.better = null; view.thumbs.lastChild.focus(); };
  view.better = el('div', { className: 'editor' }, area, el('div', {},
    el('button', { type: 'button', onclick: close }, 'Cancel'),
    el('button', { type: 'button', className: 'strong',
                   onclick: () => handlers.rate(talk, place, 'bad', area.value.trim()) }, 'Rate')));
  area.addEventListener('keydown', event => {
    if (event.key === 'Escape') { event.stopPropagation(); close(); }
  });
  view.box.append(view.better);
  area.focus();
}

function buildThumbs(talk, place, handlers) {
  const rating = talk.nodes[place].rating;
  const thumb = (name, label, act) => {
    const button = iconButton(name, label, act);
    button.setAttribute('aria-pressed', rating === name);
    return button;
  };
  return el('span', { className: 'thumbs' },
            thumb('good', 'Good answer', () => handlers.rate(talk, place, 'good', '')),
            thumb('bad', 'Bad answer', () => openBetter(talk, place, handlers)));
}

export function focusThumb(place) {
  views.get(place)?.thumbs.querySelector('[aria-pressed=true]')?.focus();
}

function buildActions(talk, place, view, handlers) {
  const node = talk.nodes[place], foot = el('footer', {});
  foot.append(iconButton('copy', 'Copy message', () => copyText(node.content)));
  if (node.role === 'user') {
    view.edit = iconButton('edit', 'Edit message', () => openEditor(talk, place, node.content, handlers));
    view.edit.classList.add('needs-rest');
    foot.append(view.edit);
  } else if (node.role === 'assistant') {
    const again = iconButton('redo', 'Answer again', () => handlers.regenerate(place));
    again.classList.add('needs-rest');
    foot.append(again, view.thumbs);
  }
  const versions = buildVersions(talk, place, handlers);
  if (versions) foot.append(versions);
  if (node.role === 'assistant') foot.append(view.figures);
  return foot;
}

function buildMessage(talk, place, handlers) {
  const node = talk.nodes[place], mine = node.role !== 'assistant';
  const name = node.role === 'user' ? 'You' : node.role === 'tool' ? 'Result' : 'Answer';
  const view = { body: el('div', { className: 'body' }) };
  view.box = el('article', { className: node.role, 'aria-label': name }, el('h2', { className: 'hidden' }, name));
  if (mine) {
    view.body.textContent = node.content;
    if (node.files?.length) view.box.append(buildFiles(node));
    if (node.content) view.box.append(view.body);
  } else {
    view.thought = el('details', { className: 'thought', ontoggle: () => drawAnswer(view, talk, place) },
                      el('summary', {}, icon('bulb'), el('span', {})), el('div', {}));
    view.calls = el('div', { className: 'calls' });
    view.end = el('p', { className: 'end' });
    view.figures = el('span', { className: 'figures' });
    view.thumbs = buildThumbs(talk, place, handlers);
    view.rated = () => handlers.rates;
    view.box.append(view.thought, view.body, view.calls, view.end);
  }
  view.box.append(buildActions(talk, place, view, handlers));
  if (!mine) drawAnswer(view, talk, place);
  views.set(place, view);
  return view.box;
}

/* ---- the whole ---- */

export function drawTalk(talk, handlers) {
  const branch = branchOf(talk);
  clearTimeout(due);
  due = 0;
  views.clear();
  keepPlace(() => {
    $('welcome').hidden = branch.length > 0;
    $('messages').replaceChildren(...branch.map(place => buildMessage(talk, place, handlers)));
  });
}

/* An answer has grown. It is drawn at most every 60 ms, since its end alone changes but all of it is read. */
export function growAnswer(talk, place) {
  due ||= setTimeout(() => {
    due = 0;
    if (views.has(place)) keepPlace(() => drawAnswer(views.get(place), talk, place));
  }, 60);
}

export function endAnswer(talk, place) {
  const node = talk.nodes[place];
  clearTimeout(due);
  due = 0;
  if (!views.has(place)) return;
  keepPlace(() => drawAnswer(views.get(place), talk, place));
  $('said').textContent = node.ended === 'stopped' ? 'The answer was stopped.'
    : 'Answer: ' + views.get(place).body.innerText + (node.tool_calls ? ' ' + views.get(place).calls.innerText : '');
}

/* What went wrong, below the messages, until the next one is sent. */
export function showError(text) {
  $('messages').append(el('p', { className: 'error', role: 'alert' }, text));
  scrollToEnd();
}

export function drawDown() {
  $('down').hidden = atEnd();
}
