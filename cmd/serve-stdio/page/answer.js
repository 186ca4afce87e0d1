/* SPDX-License-Identifier: Apache-2.0 */
/* answer.js - asks the server: the key, the stream of an answer, what stops it. */
import { askQuestion, keptValues } from './dom.js';
import { addNode, cutNodes, requestOf } from './talk.js';

const session = keptValues('sessionStorage');
export const runs = new Map(); /* conversations that are being answered: what stops them, where the answer is */
let asking = null;             /* the question for a key, while it is open */

function askKey() {
  const again = session.get('key') !== null;
  asking ??= askQuestion({
    title: 'This server asks for a key', value: '', yes: 'Use key', secret: true,
    text: (again ? 'The key was refused. ' : '') + 'It is one of the lines of --api-key-file. It stays in this window until it is closed.'
  }).then(key => {
    asking = null;
    if (key) session.set('key', key);
    return key;
  });
  return asking;
}

/* fetch() with the key, which is asked for when the server wants one. */
export async function fetchWithKey(path, options = {}) {
  for (;;) {
    const key = session.get('key'), headers = { 'Content-Type': 'application/json' };
    if (key) headers.Authorization = 'Bearer ' + key;
    const response = await fetch(path, { ...options, headers }).catch(error => {
      throw error.name === 'TypeError' ? new Error('the server does not answer') : error; /* each browser has its own words */
    });
    if (response.status !== 401) return response;
    if (session.get('key') === key && !await askKey()) throw new Error('the server wants a key');
  }
}

async function errorOf(response) {
  try {
    return new Error((await response.json()).error.message);
  } catch {
    return new Error(`the server answered with status ${response.status}`);
  }
}

/* Says what somebody thinks of an answer that the server's log has; better: what it should have been, or ''. */
export async function rateAnswer(id, rating, better) {
  const body = { id, rating, ...(better && { answer: better }) };
  const response = await fetchWithKey('v1/feedback', { method: 'POST', body: JSON.stringify(body) });
  if (!response.ok) throw await errorOf(response);
}

/* The objects of a stream of events. */
async function* eventsOf(body, signal) {
  const response = await fetchWithKey('v1/chat/completions', { method: 'POST', body: JSON.stringify(body), signal });
  if (!response.ok) throw await errorOf(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    for (const line of lines.filter(text => text.startsWith('data: {'))) {
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(event.error.message);
      yield event;
    }
  }
}

/* A call comes whole, or its arguments in parts. */
function addCall(node, { index, ...call }) {
  node.tool_calls ||= [];
  const there = index === undefined ? undefined : node.tool_calls[index];
  if (there) there.function.arguments += call.function?.arguments || '';
  else node.tool_calls.push(call);
}

function addDelta(node, delta) {
  const now = performance.now();
  if (!delta.reasoning_content && !delta.content && !delta.tool_calls) return;
  node.began ??= now;
  node.parts = (node.parts || 0) + 1;
  if (delta.reasoning_content) node.reasoning_content = (node.reasoning_content || '') + delta.reasoning_content;
  if (delta.content) node.content += delta.content;
  for (const call of delta.tool_calls || []) addCall(node, call);
  node.ms = now - node.began;
  if (!node.content && !node.tool_calls) node.thought_ms = node.ms;
}

/* Has the message at a place answered. grew(place) is called when there is more to show, ended(place) at the end. What the
 * server refuses before the first token leaves no trace: refused(error). */
export async function answerTalk(talk, up, { grew, ended, refused }) {
  const before = talk.at, node = { up, role: 'assistant', content: '', made: Date.now() };
  const place = addNode(talk, node), controller = new AbortController();
  runs.set(talk, { stop: () => controller.abort(), place });
  let failure = null;
  grew(place);
  try {
    for await (const event of eventsOf(requestOf(talk, up), controller.signal)) {
      if (event.id) node.reply = event.id;
      for (const choice of event.choices || []) {
        addDelta(node, choice.delta);
        if (choice.finish_reason) node.ended = choice.finish_reason;
      }
      if (event.usage) node.usage = event.usage;
      grew(place);
    }
    node.ended ||= 'broken';
  } catch (error) {
    node.ended = error.name === 'AbortError' ? 'stopped' : 'broken';
    node.reason = error.message;
    failure = node.ended === 'broken' && !node.parts ? error : null;
  }
  runs.delete(talk);
  delete node.began;
  talk.changed = Date.now();
  if (failure) {
    cutNodes(talk, place, before);
    refused(failure);
  } else {
    ended(place);
  }
}
