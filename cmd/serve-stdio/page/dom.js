/* SPDX-License-Identifier: Apache-2.0 */
/* dom.js - what every part of the page needs: elements, questions, the clipboard, files to save. */

export const $ = id => document.getElementById(id);

/* An element. Text goes in as text nodes: nothing here reads HTML. */
export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties))
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  node.append(...children.filter(child => child !== null && child !== undefined));
  return node;
}

export function icon(name) {
  const svg = $('icon').content.firstElementChild.cloneNode(true);
  svg.firstElementChild.setAttribute('href', '#i-' + name);
  return svg;
}

/* A button that shows an icon; its name is for screen readers and the mouse. */
export function iconButton(name, label, onclick) {
  return el('button', { type: 'button', className: 'icon', title: label, 'aria-label': label, onclick }, icon(name));
}

/* sessionStorage or localStorage; where it is forbidden or full, values last until a reload. */
export function keptValues(kind) {
  const here = new Map();
  return {
    get(name) {
      try {
        return window[kind].getItem('chimere.' + name) ?? here.get(name) ?? null;
      } catch {
        return here.get(name) ?? null;
      }
    },
    set(name, value) {
      here.set(name, value);
      try {
        if (value) window[kind].setItem('chimere.' + name, value);
        else window[kind].removeItem('chimere.' + name);
      } catch { /* kept in memory above */ }
    }
  };
}

/* Said by screen readers, and shown for a moment. */
let fading = 0;
export function announce(text) {
  $('status').textContent = text;
  $('status').classList.add('shown');
  clearTimeout(fading);
  fading = setTimeout(() => $('status').classList.remove('shown'), 2500);
}

/* Asks: true for yes, or the text where a value is given; null for no. */
export async function askQuestion({ title, text = '', value, yes, danger = false, secret = false }) {
  const dialog = $('question'), input = $('question-value');
  while (dialog.open) await new Promise(resolve => dialog.addEventListener('close', resolve, { once: true }));
  $('question-title').textContent = title;
  $('question-text').textContent = text;
  $('question-yes').textContent = yes;
  $('question-yes').classList.toggle('danger', danger);
  input.hidden = value === undefined;
  input.type = secret ? 'password' : 'text';
  input.value = value ?? '';
  dialog.returnValue = '';
  dialog.showModal();
  if (input.hidden) $('question-no').focus();
  else input.select();
  return new Promise(resolve => {
    dialog.addEventListener('close', () => {
      const agreed = dialog.returnValue === 'yes';
      resolve(!agreed ? null : input.hidden ? true : input.value.trim() || null);
      input.value = '';
    }, { once: true });
  });
}

export function wireQuestion() {
  const dialog = $('question');
  $('question-yes').addEventListener('click', () => dialog.close('yes'));
  $('question-no').addEventListener('click', () => dialog.close(''));
  $('question-value').addEventListener('keydown', event => {
    if (event.key !== 'Enter' || event.isComposing) return;
    event.preventDefault();
    dialog.close('yes');
  });
}

/* The clipboard's own interface is there for https and this machine alone. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el('textarea', { value: text, className: 'hidden' }), focused = document.activeElement;
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    focused?.focus();
    if (!done) return announce('The browser does not let this page copy');
  }
  announce('Copied');
}

export function downloadText(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/* 1 KB is 1024 bytes, as everywhere in these programs. */
export function sizeText(bytes) {
  return bytes < 1024 ? bytes + ' bytes' : bytes < 1 << 20 ? (bytes / 1024).toFixed(1) + ' KB'
    : (bytes / (1 << 20)).toFixed(1) + ' MB';
}
