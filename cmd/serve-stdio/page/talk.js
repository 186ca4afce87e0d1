/* SPDX-License-Identifier: Apache-2.0 */
/* talk.js - a conversation: a tree of messages, of which one branch is shown. A message that is edited and an answer
 * that is asked for again get a sibling, so nothing is lost. */

export const numbers = ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'reasoning_budget'];

export function newTalk(settings) {
  return { id: crypto.getRandomValues(new Uint32Array(2)).join('-'), title: '', made: Date.now(), changed: Date.now(),
           settings: { ...settings }, nodes: [], at: -1 };
}

/* The places of the messages that are shown, from the first one to the one at the end. */
export function branchOf(talk, end = talk.at) {
  const places = [];
  for (let i = end; i >= 0; i = talk.nodes[i].up) places.unshift(i);
  return places;
}

export function addNode(talk, node) {
  talk.nodes.push(node);
  talk.changed = Date.now();
  talk.at = talk.nodes.length - 1;
  return talk.at;
}

/* Takes back the messages from a place on; at is what was shown before. */
export function cutNodes(talk, from, at) {
  talk.nodes.length = from;
  talk.at = at;
}

export function siblingsOf(talk, place) {
  return [...talk.nodes.keys()].filter(i => talk.nodes[i].up === talk.nodes[place].up);
}

/* Shows another version of a message, with what was last said after it. */
export function chooseNode(talk, place) {
  const next = talk.nodes.findLastIndex(node => node.up === place);
  if (next < 0) talk.at = place;
  else chooseNode(talk, next);
}

/* The tool call whose result is next, if the talk waits for one. */
export function dueCall(talk) {
  const branch = branchOf(talk), last = branch.findLastIndex(i => talk.nodes[i].role !== 'tool');
  const calls = last < 0 ? [] : talk.nodes[branch[last]].tool_calls || [];
  return calls[branch.length - 1 - last] || null;
}

export function titleOf(talk) {
  return talk.title || 'New conversation';
}

export function titleFrom(node) {
  const line = (node.content.trim() || node.files?.[0]?.name || '').split('\n')[0];
  return line.length > 60 ? line.slice(0, 57).trimEnd() + '…' : line;
}

/* A message with its files, each in a fence that is longer than any in it. */
export function textWithFiles(node) {
  const parts = (node.files || []).map(file => {
    const fence = '`'.repeat(Math.max(3, ...(file.text.match(/`+/g) || []).map(run => run.length + 1)));
    return `File ${file.name}:\n${fence}\n${file.text}\n${fence}`;
  });
  return [...parts, node.content].filter(Boolean).join('\n\n');
}

/* The messages of a branch as the server takes them. */
export function messagesOf(talk, end = talk.at) {
  const messages = [];
  if (talk.settings.system?.trim()) messages.push({ role: 'system', content: talk.settings.system });
  for (const node of branchOf(talk, end).map(i => talk.nodes[i])) {
    if (node.role === 'assistant' && !node.content && !node.tool_calls) continue;
    const message = { role: node.role, content: textWithFiles(node) };
    for (const name of ['reasoning_content', 'tool_calls', 'tool_call_id'])
      if (node[name]) message[name] = node[name];
    messages.push(message);
  }
  return messages;
}

export function parseTools(text) {
  let tools;
  try {
    tools = JSON.parse(text);
  } catch (error) {
    throw new Error('the tools in the settings are no JSON: ' + error.message);
  }
  if (!Array.isArray(tools)) throw new Error('the tools in the settings are no array');
  return tools;
}

export function requestOf(talk, end) {
  const settings = talk.settings;
  const body = { messages: messagesOf(talk, end), stream: true, stream_options: { include_usage: true } };
  for (const name of numbers)
    if (settings[name] !== undefined && settings[name] !== '') body[name] = Number(settings[name]);
  if (settings.thinking) body.chat_template_kwargs = { enable_thinking: settings.thinking === 'on' };
  if (settings.tools?.trim()) body.tools = parseTools(settings.tools);
  return body;
}

/* As chimere-run --messages reads it. */
export function exportJson(talk) {
  return JSON.stringify(messagesOf(talk), null, 2) + '\n';
}

/* A conversation from such a file, of this page or another program. */
export function importJson(text, name) {
  const read = JSON.parse(text), messages = Array.isArray(read) ? read : read?.messages, talk = newTalk({});
  if (!Array.isArray(messages) || messages.length === 0) throw new Error('has no messages');
  for (const { role, content, reasoning_content, tool_calls, tool_call_id } of messages) {
    const words = Array.isArray(content) ? content.map(part => part.text || '').join('') : content ?? '';
    if (!['system', 'developer', 'user', 'assistant', 'tool'].includes(role) || typeof words !== 'string' ||
        (tool_calls && !tool_calls.every(call => typeof call.function?.name === 'string')))
      throw new Error('has something else than messages');
    if (role === 'system' || role === 'developer')
      talk.settings.system = [talk.settings.system, words].filter(Boolean).join('\n\n');
    else
      addNode(talk, { up: talk.at, role, content: words, ended: 'stop', reasoning_content, tool_calls, tool_call_id });
  }
  if (talk.nodes.length === 0) throw new Error('has no messages');
  talk.title = titleFrom(talk.nodes[0]) || name;
  return talk;
}

export function exportMarkdown(talk) {
  const names = { system: 'System', user: 'You', assistant: 'Answer', tool: 'Result' };
  const parts = messagesOf(talk).map(message => {
    const calls = (message.tool_calls || []).map(call => `\`${call.function.name} ${call.function.arguments}\``);
    return [`## ${names[message.role]}`, message.content, ...calls].filter(Boolean).join('\n\n');
  });
  return [`# ${titleOf(talk)}`, ...parts].join('\n\n') + '\n';
}

export function fileName(talk, ending) {
  return (titleOf(talk).replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-+|-+$/g, '') || 'conversation') + ending;
}
