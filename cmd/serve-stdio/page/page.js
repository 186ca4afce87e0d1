/* SPDX-License-Identifier: Apache-2.0 */
/* page.js - the list of conversations, the line to write on, the settings. */
import { $, announce, askQuestion, downloadText, el, icon, iconButton, keptValues, sizeText, wireQuestion } from './dom.js';
import { answerTalk, fetchWithKey, rateAnswer, runs } from './answer.js';
import { drawDown, drawTalk, endAnswer, focusThumb, growAnswer, keepPlace, openEditor, scrollToEnd,
         showError } from './log.js';
import { openStore, readTalk, removeTalk, writeTalk } from './store.js';
import { addNode, branchOf, cutNodes, dueCall, exportJson, exportMarkdown, fileName, importJson, newTalk, numbers,
         parseTools, titleFrom, titleOf } from './talk.js';

const FILE_BYTES = 1 << 20; /* of an attachment at most */
const SAVE_MS = 2000;       /* between two savings of an answer that grows */

const local = keptValues('localStorage'), session = keptValues('sessionStorage');
const talks = new Map();   /* all conversations with a message, by id */
const unsaved = new Map(); /* those that the browser did not keep, with its reason */
let current = null;        /* the one that is open */
let files = [];            /* attachments of the line */
const attached = new Map(); /* and of the lines of other conversations, by id */
let context = 0;           /* tokens that the server has room for */

/* ---- keeping ---- */

function showUnsaved() {
  const reason = [...unsaved.values()][0];
  $('notice').hidden = unsaved.size === 0;
  if (reason) $('notice-text').textContent = `Not kept: ${reason}. Everything stays here until the window is closed; ` +
    'export what you need, or delete conversations to make room.';
}

function reasonOf(error) {
  return error.name === 'QuotaExceededError' ? "the browser's storage for this page is full" : error.message;
}

async function saveTalk(talk) {
  if (talk.nodes.length === 0) return;
  const id = talk.id;
  try {
    const parted = await writeTalk(talk);
    unsaved.delete(id);
    if (parted) {
      talks.delete(id);
      talks.set(talk.id, talk);
      talk.title = titleOf(talk) + ' (other window)';
      if (talk === current) rememberOpen();
      announce('Another window has changed this conversation: both are kept');
      await readChanged(id);
      return saveTalk(talk);
    }
  } catch (error) {
    unsaved.set(id, reasonOf(error));
  }
  showUnsaved();
  drawList();
}

/* Another window has written or removed a conversation. */
async function readChanged(id) {
  if (runs.has(talks.get(id))) return; /* writing the answer will find out */
  const talk = await readTalk(id);
  if (talk) talks.set(id, talk);
  else talks.delete(id);
  if (current.id === id) openTalk(talk || newTalk(defaults()));
  else drawList();
}

/* ---- the list ---- */

function dayOf(time) {
  const midnight = new Date().setHours(0, 0, 0, 0), day = 24 * 3600 * 1000;
  return time >= midnight ? 'Today' : time >= midnight - day ? 'Yesterday' : time >= midnight - 6 * day ? 'This week' : 'Earlier';
}

function buildRow(talk) {
  const open = el('button', { type: 'button', className: 'talk', onclick: () => { openTalk(talk); showSide(false); } },
                  titleOf(talk));
  if (talk === current) open.setAttribute('aria-current', 'true');
  return el('li', { className: (talk === current ? 'current' : '') + (runs.has(talk) ? ' busy' : '') }, open,
            iconButton('edit', 'Rename ' + titleOf(talk), () => renameTalk(talk)),
            iconButton('trash', 'Delete ' + titleOf(talk), () => deleteTalk(talk)));
}

function drawList() {
  const wanted = $('find').value.trim().toLowerCase();
  const has = talk => [talk.title, ...talk.nodes.map(node => node.content)].some(text => text.toLowerCase().includes(wanted));
  const rows = [...talks.values()].filter(talk => !wanted || has(talk)).sort((a, b) => b.changed - a.changed);
  const focused = document.activeElement?.closest?.('#talks') ? document.activeElement.getAttribute('aria-label') ||
    document.activeElement.textContent : null;
  let day = '';
  $('talks').replaceChildren(...rows.flatMap(talk => {
    const now = dayOf(talk.changed), head = now === day ? [] : [el('li', { className: 'day' }, now)];
    day = now;
    return [...head, buildRow(talk)];
  }));
  if (rows.length === 0) $('talks').append(el('li', { className: 'day' }, wanted ? 'Nothing found' : 'No conversations yet'));
  if (focused) [...$('talks').querySelectorAll('button')]
    .find(b => (b.getAttribute('aria-label') || b.textContent) === focused)?.focus();
}

async function renameTalk(talk) {
  const title = await askQuestion({ title: 'Rename conversation', value: titleOf(talk), yes: 'Rename' });
  if (!title) return;
  talk.title = title;
  if (talk === current) drawHead();
  await saveTalk(talk);
}

async function deleteTalk(talk) {
  if (!await askQuestion({ title: 'Delete this conversation?', text: `“${titleOf(talk)}” cannot be brought back.`,
                           yes: 'Delete', danger: true })) return;
  runs.get(talk)?.stop();
  talks.delete(talk.id);
  unsaved.delete(talk.id);
  if (talk === current) openTalk(newTalk(defaults()));
  try {
    await removeTalk(talk.id);
    for (const id of unsaved.keys()) await saveTalk(talks.get(id)); /* there may be room now */
  } catch { /* it was never kept */ }
  showUnsaved();
  drawList();
  announce('Deleted');
}

/* ---- the open conversation ---- */

const handlers = {
  changed: saveTalk,
  edit: (place, text) => {
    const talk = current, node = talk.nodes[place];
    postMessage(talk, { role: 'user', content: text, files: node.files }, node.up,
                () => talk === current && openEditor(talk, place, text, handlers));
  },
  regenerate: place => askServer(current, current.nodes[place].up, current.at, () => {}),
  rates: false, /* the server keeps a log, in which answers can be rated */
  rate: async (talk, place, rating, better) => {
    try {
      await rateAnswer(talk.nodes[place].reply, rating, better);
    } catch (error) {
      return showError('Not rated: ' + error.message.replace(/\.$/, '') + '.');
    }
    talk.nodes[place].rating = rating;
    if (talk === current) {
      drawTalk(talk, handlers);
      focusThumb(place);
    }
    announce('Rated');
    await saveTalk(talk);
  }
};

function rememberOpen() {
  session.set('open', current.id);
}

function drawHead() {
  $('title').textContent = titleOf(current);
  document.title = current.nodes.length ? titleOf(current) + ' - chimere' : 'chimere';
}

function openTalk(talk) {
  if (current) {
    session.set('line.' + current.id, $('text').value);
    attached.set(current.id, files);
  }
  current = talk;
  rememberOpen();
  $('text').value = session.get('line.' + talk.id) || '';
  files = attached.get(talk.id) || [];
  drawHead();
  drawList();
  fillSettings();
  drawFiles();
  drawTalk(talk, handlers);
  drawLine();
  scrollToEnd();
  if (!matchMedia('(pointer: coarse)').matches) $('text').focus();
}

/* Has the message at a place answered; before is what was shown before, back() brings back what the server refused. */
async function askServer(talk, up, before, back) {
  if (runs.has(talk)) return;
  let saved = performance.now();
  const done = answerTalk(talk, up, {
    grew: place => {
      if (talk === current) growAnswer(talk, place);
      if (performance.now() - saved < SAVE_MS) return;
      saved = performance.now();
      saveTalk(talk);
    },
    ended: place => {
      if (talk === current) endAnswer(talk, place);
      drawContext();
      if (!context) showModel(); /* the server did not answer before, or there was no key */
    },
    refused: error => {
      talk.at = before;
      if (talk === current) drawTalk(talk, handlers);
      back();
      if (talk === current) showError('Not sent: ' + error.message.replace(/\.$/, '') + '.');
    }
  });
  if (talk === current && runs.has(talk)) { /* not refused already */
    drawTalk(talk, handlers);
    scrollToEnd();
    drawLine();
  }
  drawList();
  await done;
  if (talk === current) drawLine();
  if (talks.has(talk.id)) await saveTalk(talk);
}

/* Adds a message after the one at up, and has it answered. Refused, it is taken out again. */
function postMessage(talk, node, up, back) {
  const before = talk.at, from = talk.nodes.length;
  addNode(talk, { ...node, up, made: Date.now() });
  talk.title ||= titleFrom(node);
  talks.set(talk.id, talk);
  drawHead();
  if (dueCall(talk)) { /* the answer waits for more results */
    drawTalk(talk, handlers);
    drawLine();
    scrollToEnd();
    return saveTalk(talk);
  }
  saveTalk(talk);
  return askServer(talk, talk.at, before, () => {
    cutNodes(talk, from, before);
    if (from === 0) {
      talk.title = '';
      talks.delete(talk.id);
      removeTalk(talk.id).catch(() => {});
    }
    if (talk === current) {
      drawHead();
      drawTalk(talk, handlers);
    }
    drawList();
    back();
  });
}

/* ---- the line ---- */

function drawLine() {
  const call = dueCall(current), running = runs.has(current);
  $('hint').textContent = call ? `Result of ${call.function.name}` : 'Message';
  $('text').placeholder = call ? `What ${call.function.name} returns` : 'Write a message';
  $('send').hidden = running;
  $('send').disabled = !$('text').value.trim() && files.length === 0;
  $('stop').hidden = !running;
  document.body.classList.toggle('running', running);
  keepPlace(() => {
    $('text').style.height = 'auto';
    $('text').style.height = Math.min($('text').scrollHeight + 2, innerHeight * 0.4) + 'px';
  });
  drawContext();
}

function drawContext() {
  const last = branchOf(current).map(i => current.nodes[i]).findLast(node => node.usage)?.usage;
  $('context').textContent = !context ? '' : !last ? `${context.toLocaleString('en')} tokens of context`
    : `${(last.prompt_tokens + last.completion_tokens).toLocaleString('en')} of ${context.toLocaleString('en')} tokens used`;
}

function sendLine() {
  const talk = current, text = $('text').value, own = files, call = dueCall(talk);
  if (runs.has(talk) || (!text.trim() && own.length === 0)) return;
  const node = call ? { role: 'tool', tool_call_id: call.id, content: text } : { role: 'user', content: text };
  if (own.length) node.files = own;
  $('text').value = '';
  session.set('line.' + talk.id, '');
  files = [];
  drawFiles();
  drawLine();
  postMessage(talk, node, talk.at, () => {
    if (talk !== current) {
      session.set('line.' + talk.id, text);
      attached.set(talk.id, own);
      return;
    }
    $('text').value = [text, $('text').value].filter(Boolean).join('\n\n');
    files = [...own, ...files];
    drawFiles();
    drawLine();
    $('text').focus();
  });
  $('text').focus();
}

function drawFiles() {
  $('files').hidden = files.length === 0;
  $('files').replaceChildren(...files.map(file => el('li', {}, icon('clip'),
    el('span', {}, file.name + ', ' + sizeText(file.text.length)),
    iconButton('close', 'Remove ' + file.name, () => {
      files = files.filter(other => other !== file);
      drawFiles();
      drawLine();
      $('text').focus();
    }))));
}

async function readFile(file) {
  if (file.size > FILE_BYTES) throw new Error(`is larger than ${sizeText(FILE_BYTES)}`);
  let text = '\0';
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
  } catch { /* not UTF-8, or a folder */ }
  if (text.includes('\0')) throw new Error('is not a text file (UTF-8)');
  return { name: file.name, text };
}

async function addFiles(list) {
  const refused = [];
  for (const file of list) {
    try {
      files = [...files, await readFile(file)];
    } catch (error) {
      refused.push(`${file.name} ${error.message}.`);
    }
  }
  drawFiles();
  drawLine();
  if (refused.length) showError('Not attached: ' + refused.join(' '));
  $('text').focus();
}

/* Opens conversations that were saved as JSON. */
async function openSaved(list) {
  const refused = [];
  for (const file of list) {
    try {
      const talk = importJson(await file.text(), file.name);
      talks.set(talk.id, talk);
      openTalk(talk);
      await saveTalk(talk);
    } catch (error) {
      refused.push(`${file.name}: ${error.message}.`);
    }
  }
  if (refused.length) showError('Not opened: ' + refused.join(' '));
}

/* ---- settings ---- */

const settingNames = ['system', ...numbers, 'thinking', 'tools'];

function defaults() {
  try {
    return JSON.parse(local.get('settings')) || {};
  } catch {
    return {};
  }
}

function fillSettings() {
  for (const name of settingNames) $('set-' + name).value = current.settings[name] ?? '';
  checkSettings();
}

function checkSettings() {
  let wrong = '';
  try {
    if ($('set-tools').value.trim()) parseTools($('set-tools').value);
  } catch (error) {
    wrong = error.message.replace(/^t/, 'T') + '.';
  }
  $('set-tools').setAttribute('aria-invalid', wrong !== '');
  $('tools-wrong').textContent = wrong;
}

function takeSettings() {
  for (const name of settingNames) current.settings[name] = $('set-' + name).value;
  checkSettings();
  saveTalk(current);
}

function showSettings(shown) {
  $('settings').hidden = !shown;
  $('settings-open').setAttribute('aria-expanded', shown);
  (shown ? $('set-system') : $('settings-open')).focus();
}

/* ---- the rest ---- */

function showSide(shown) {
  document.body.classList.toggle('side', shown);
  document.querySelector('main').inert = shown;
  $('side-open').setAttribute('aria-expanded', shown);
  if (shown) $('fresh').focus();
}

function pressEscape(event) {
  if (event.key !== 'Escape' || event.defaultPrevented || document.querySelector('dialog[open]')) return;
  if (document.body.classList.contains('side')) {
    showSide(false);
    $('side-open').focus();
  } else if (runs.has(current)) {
    runs.get(current).stop();
    $('text').focus();
  } else if (!$('settings').hidden) {
    showSettings(false);
  }
}

function wireLine() {
  $('form').addEventListener('submit', event => { event.preventDefault(); sendLine(); });
  $('text').addEventListener('input', drawLine);
  $('text').addEventListener('keydown', event => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing || matchMedia('(pointer: coarse)').matches) return;
    event.preventDefault();
    sendLine();
  });
  $('stop').addEventListener('click', () => { runs.get(current)?.stop(); $('text').focus(); });
  $('attach').title = `Attach text files, at most ${sizeText(FILE_BYTES)} each`;
  $('attach').addEventListener('click', () => $('pick').click());
  $('pick').addEventListener('change', () => { addFiles([...$('pick').files]); $('pick').value = ''; });
  $('text').addEventListener('paste', event => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    addFiles([...event.clipboardData.files]);
  });
  document.addEventListener('dragover', event => { event.preventDefault(); document.body.classList.add('drop'); });
  document.addEventListener('dragleave', event => { if (!event.relatedTarget) document.body.classList.remove('drop'); });
  document.addEventListener('drop', event => {
    event.preventDefault();
    document.body.classList.remove('drop');
    addFiles([...event.dataTransfer.files]);
  });
}

function wireMenus() {
  const menu = $('menu'), act = (id, work) => $(id).addEventListener('click', () => { menu.hidePopover(); work(); });
  act('rename', () => renameTalk(current));
  act('delete', () => deleteTalk(current));
  act('export-markdown', () => downloadText(fileName(current, '.md'), 'text/markdown', exportMarkdown(current)));
  act('export-json', () => downloadText(fileName(current, '.json'), 'application/json', exportJson(current)));
  act('import', () => $('saved').click());
  $('saved').addEventListener('change', () => { openSaved([...$('saved').files]); $('saved').value = ''; });
  menu.addEventListener('beforetoggle', () => {
    for (const button of menu.querySelectorAll('button:not(#import)')) button.disabled = current.nodes.length === 0;
  });
  $('fresh').addEventListener('click', () => { openTalk(newTalk(defaults())); showSide(false); $('text').focus(); });
  $('find').addEventListener('input', drawList);
  $('side-open').addEventListener('click', () => showSide(true));
  $('side-close').addEventListener('click', () => { showSide(false); $('side-open').focus(); });
  $('shade').addEventListener('click', () => showSide(false));
  $('settings-open').addEventListener('click', () => showSettings($('settings').hidden));
  $('settings-close').addEventListener('click', () => showSettings(false));
  $('settings').addEventListener('change', takeSettings);
  $('settings-keep').addEventListener('click', () => {
    takeSettings();
    local.set('settings', JSON.stringify(current.settings));
    announce('New conversations begin with these settings');
  });
  $('down').addEventListener('click', scrollToEnd);
  $('log').addEventListener('scroll', drawDown);
  document.addEventListener('keydown', pressEscape);
}

async function showModel() {
  try {
    const model = (await (await fetchWithKey('v1/models')).json()).data[0];
    $('model').textContent = $('welcome-model').textContent = model.id;
    context = model.context_length || 0;
    drawContext();
    if (!model.feedback) return;
    handlers.rates = true;
    drawTalk(current, handlers);
  } catch (error) {
    showError('The model is not known: ' + error.message + '.');
  }
}

async function startPage() {
  let failure = null;
  wireQuestion();
  wireLine();
  wireMenus();
  try {
    for (const talk of await openStore(readChanged)) talks.set(talk.id, talk);
  } catch (error) {
    failure = `this browser keeps nothing for this page (${error.message || error.name})`;
  }
  openTalk(talks.get(session.get('open')) || newTalk(defaults()));
  if (failure) {
    unsaved.set('', failure);
    showUnsaved();
  }
  addEventListener('pagehide', () => session.set('line.' + current.id, $('text').value));
  addEventListener('beforeunload', event => {
    if (runs.size || (unsaved.size && talks.size)) event.preventDefault();
  });
  document.body.dataset.ready = 'yes';
  await showModel();
}

startPage();
