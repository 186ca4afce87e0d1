/* SPDX-License-Identifier: Apache-2.0 */
/* store.js - conversations in the browser's IndexedDB, shared by the windows of this page. */

const channel = 'BroadcastChannel' in window ? new BroadcastChannel('chimere') : null;
const stamps = new Map(); /* of what was last read or written here, by conversation */
let base = null;
let writing = Promise.resolve();

function resultOf(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/* All conversations. changed(id) is called when another window has written or removed one. */
export async function openStore(changed) {
  const request = indexedDB.open('chimere', 1);
  request.onupgradeneeded = () => request.result.createObjectStore('talks', { keyPath: 'id' });
  base = await resultOf(request);
  base.onversionchange = () => base.close();
  if (channel) channel.onmessage = event => changed(event.data);
  const talks = await resultOf(base.transaction('talks').objectStore('talks').getAll());
  for (const talk of talks) stamps.set(talk.id, talk.stamp);
  return talks;
}

export async function readTalk(id) {
  const talk = await resultOf(base.transaction('talks').objectStore('talks').get(id));
  stamps.set(id, talk?.stamp);
  return talk;
}

/* Runs one change after the other; resolved when it is on disk, rejected with the browser's reason. */
function changeStore(work) {
  const done = writing.then(() => new Promise((resolve, reject) => {
    if (!base) throw new Error('this browser keeps nothing for this page');
    const transaction = base.transaction('talks', 'readwrite');
    let result;
    transaction.oncomplete = () => resolve(result);
    transaction.onabort = () => reject(transaction.error || new Error('the browser has no room'));
    work(transaction.objectStore('talks'), value => { result = value; });
  }));
  writing = done.catch(() => {});
  return done;
}

/* Writes a conversation. Where another window has changed it since it was read here, both stay: this one gets a new id,
 * and true is returned. */
export async function writeTalk(talk) {
  const stamp = crypto.getRandomValues(new Uint32Array(2)).join('-');
  const parted = await changeStore((store, give) => {
    store.get(talk.id).onsuccess = event => {
      const there = event.target.result;
      const other = there !== undefined && there.stamp !== stamps.get(talk.id);
      if (other) talk.id = stamp;
      store.put({ ...talk, stamp });
      give(other);
    };
  });
  stamps.set(talk.id, stamp);
  channel?.postMessage(talk.id);
  return parted;
}

export async function removeTalk(id) {
  await changeStore(store => { store.delete(id); });
  stamps.delete(id);
  channel?.postMessage(id);
}
