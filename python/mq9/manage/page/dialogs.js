// Dialogs: they name what they do, and stay open when it was refused.

import { Refused, ask, path } from './api.js';
import { el } from './dom.js';
import { count, level, levelName, plural, shown } from './format.js';
import { subjects } from './parts.js';
import { say } from './payload.js';

let numbers = 0;

// `act` does it and may throw; its result is told. `confirm` is a name that has to be typed.
export function dialog({ title, body, keep = 'Cancel', button, confirm, act, done }) {
  const before = document.activeElement;
  const wrong = el('p', { class: 'wrong note', role: 'alert', hidden: true });
  const typed = confirm === undefined ? null : el('input', { autocomplete: 'off', spellcheck: 'false', name: 'confirm' });
  const go = el('button', { type: 'submit', class: 'button main' }, button);
  const id = `dialog-${numbers += 1}`;
  const leave = el('button', { type: 'button', class: 'button', autofocus: true, onclick: () => box.close() }, keep);
  const form = el('form', { method: 'dialog' },
    el('h2', { id }, title), body,
    typed ? el('label', null, el('span', { class: 'second' }, 'Type the name to go on: ', el('code', null, shown(confirm))), typed) : null,
    wrong, el('div', { class: 'actions' }, leave, go));
  const box = el('dialog', { 'aria-labelledby': id }, form);
  const check = () => { go.disabled = typed ? typed.value !== confirm : false; };
  form.oninput = check;
  form.onsubmit = async (event) => {
    event.preventDefault();
    if (go.disabled) return;
    go.disabled = true;
    wrong.hidden = true;
    try {
      const text = await act(form);
      box.close();
      say(text);
      done();
    } catch (error) {
      wrong.textContent = error.message;
      wrong.hidden = false;
      go.disabled = false;
      // What is behind the dialog is not true any more.
      if (error instanceof Refused && [403, 404, 409].includes(error.status)) done(error.problem);
    }
  };
  box.onclose = () => { box.remove(); before?.focus?.(); };
  document.body.append(box);
  check();
  box.showModal();
  return box;
}

const levels = (lanes) => el('div', { class: 'box' }, Object.entries(lanes).map(([at, n]) => level(at, `${count(n)} ${levelName(at)}`)));

export function purge(queue, done) {
  const isStream = queue.kind === 'stream';
  // What a stream has delayed is not in it yet, and stays.
  const delayed = isStream ? 0 : queue.delayed, all = queue.depth + delayed;
  dialog({
    title: ['Purge ', el('code', null, shown(queue.name)), '?'],
    body: [
      el('p', { class: 'second' }, `${plural(all, 'message')} are removed for good and do not become dead letters`,
        delayed ? `, ${count(delayed)} delayed ones among them` : '', `. The ${isStream ? 'stream' : 'queue'} and its ${plural(queue.consumers, isStream ? 'consumer' : 'group')} stay`, isStream && queue.delayed ? `, and so do ${plural(queue.delayed, 'delayed message')}.` : '.'),
      all && !isStream ? levels(queue.lanes) : null,
    ],
    keep: 'Keep them', button: `Purge ${plural(all, 'message')}`, confirm: queue.name, done,
    act: async () => `${plural((await ask('POST', `${path('queues', queue.name, 'purge')}?kind=${queue.kind}`, { expected: all })).purged, 'message')} purged`,
  });
}

// What the configuration has is made again.
const comesBack = (is, how) => (is ? el('p', { class: 'is-attention' }, `The broker’s configuration declares it: it comes back at the next start or reload, ${how}.`) : null);

export function remove(queue, done) {
  const isStream = queue.kind === 'stream', all = queue.depth + queue.delayed;
  dialog({
    title: ['Delete ', isStream ? 'stream ' : '', el('code', null, shown(queue.name)), '?'],
    body: [
      el('p', { class: 'second' }, `The ${isStream ? 'stream' : 'queue'} goes with ${plural(all, 'message')}${queue.delayed ? `, ${count(queue.delayed)} delayed among them,` : ''} and ${plural(queue.consumers, isStream ? 'consumer' : 'group')}. This cannot be undone.`),
      comesBack(queue.declared, 'without its messages'),
    ],
    keep: 'Keep it', button: `Delete it and ${plural(all, 'message')}`, confirm: queue.name, done,
    act: async () => { await ask('DELETE', `${path('queues', queue.name)}?kind=${queue.kind}&expected=${all}`); return 'Deleted'; },
  });
}

export function removeGroup(queue, group, done) {
  const isStream = queue.kind === 'stream', word = isStream ? 'consumer' : 'group';
  dialog({
    title: [`Delete ${word} `, el('code', null, shown(group.name)), '?'],
    body: [
      el('p', { class: 'second' }, `Its position goes${group.ack_pending ? `, and what it knows of ${plural(group.ack_pending, 'message')} that it has not acknowledged` : ''}. `,
        queue.policy.retention === 'interest' ? 'The stream then removes messages that no other consumer waits for.' : `The messages stay in the ${isStream ? 'stream' : 'queue'}.`),
      comesBack(queue.declared_consumers.includes(group.name), 'and begins anew'),
    ],
    keep: 'Keep it', button: `Delete the ${word}`, confirm: group.name, done,
    act: async () => { await ask('DELETE', `${path('consumers', group.name)}?${new URLSearchParams({ queue: queue.name, kind: queue.kind })}`); return 'Deleted'; },
  });
}

const priorities = () => el('label', null, 'Priority', el('select', { name: 'priority' }, ['critical', 'urgent', 'normal', 'notify'].map((word) =>
  el('option', { value: word, selected: word === 'normal' }, word))));
const delay = () => el('label', null, 'Delay in seconds', el('input', { name: 'delay', type: 'number', min: '0', value: '0' }));
const payload = () => el('label', null, 'Payload', el('textarea', { name: 'payload', rows: '5', spellcheck: 'false' }));

async function post(queue, kind, message) {
  const sent = await ask('POST', `${path('queues', queue, 'messages')}?kind=${kind}`, message);
  return sent.duplicate ? `It was there already, as message ${sent.msg_id}` : sent.msg_id < 0 ? 'Sent, to come later' : `Sent as message ${sent.msg_id}`;
}

export function send(address, done) {
  dialog({
    title: ['Send a message', address ? [' to ', el('code', null, shown(address))] : null], button: 'Send', done,
    body: [
      address ? null : el('label', null, 'To', el('input', { name: 'address', required: true, autocomplete: 'off' })),
      payload(), priorities(), el('label', null, 'Key (optional)', el('input', { name: 'key', autocomplete: 'off' })), delay(),
    ],
    act: (form) => {
      const { payload: text, priority, key, delay: wait } = form.elements;
      return post(address || form.elements.address.value, 'mailbox', { payload: text.value, priority: priority.value, key: key.value, delay_s: Number(wait.value) });
    },
  });
}

// One header a line, as they are written.
function headersOf(text) {
  const lines = text.split('\n').filter((line) => line.trim());
  return Object.fromEntries(lines.map((line) => {
    const at = line.indexOf(':');
    if (at < 1) throw new Error(`“${shown(line.slice(0, 40))}” is no header: it needs a name, a colon and a value`);
    return [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  }));
}

export function sendToStream(queue, done) {
  const literal = queue.subjects.filter((subject) => !/(^|\.)[*>](\.|$)/.test(subject));
  dialog({
    title: ['Send a message to stream ', el('code', null, shown(queue.name))], button: 'Send', done,
    body: [
      el('label', null, 'Subject', el('input', { name: 'subject', required: true, autocomplete: 'off', spellcheck: 'false', value: literal.length === 1 && queue.subjects.length === 1 ? literal[0] : null }),
        queue.subjects.length ? el('span', { class: 'note third' }, 'The stream stores ', subjects(queue)) : null),
      payload(),
      el('label', null, 'Headers (optional)', el('textarea', { name: 'headers', rows: '2', spellcheck: 'false', placeholder: 'Name: value' })),
      el('label', null, 'Nats-Msg-Id (optional): sent again with this, it is stored once', el('input', { name: 'id', autocomplete: 'off', spellcheck: 'false' })),
      delay(),
    ],
    act: (form) => {
      const { subject, payload: text, headers, id, delay: wait } = form.elements;
      const given = { ...headersOf(headers.value), ...(id.value ? { 'Nats-Msg-Id': id.value } : {}) };
      return post(queue.name, 'stream', { subject: subject.value, payload: text.value, headers: given, delay_s: Number(wait.value) });
    },
  });
}

export function replay(filter, total, done) {
  const all = el('input', { type: 'radio', name: 'how', value: 'all' });
  dialog({
    title: `Replay ${plural(total, 'dead letter')}?`,
    body: [
      el('p', { class: 'second' }, 'Each goes back once to where it came from, behind what waits in its lane, and is marked as resolved.'),
      el('label', { class: 'inline' }, el('input', { type: 'radio', name: 'how', value: 'some', checked: true }), '5 first, then ask me again'),
      el('label', { class: 'inline' }, all, `All ${count(total)}; can be stopped`),
    ],
    keep: 'Leave them', button: 'Replay', done: () => done(null),
    act: async () => {
      const body = { ...filter, expected: total, wait: false };
      if (!all.checked) body.limit = 5;
      done(await ask('POST', '/v1/dead-letters/replay-all', body));
      return 'Replaying';
    },
  });
}

export function purgeLetters(filter, total, done) {
  const which = [filter.queue ? [' from ', el('code', null, shown(filter.queue))] : null, filter.reason ? [' for ', el('code', null, shown(filter.reason))] : null];
  dialog({
    title: [`Purge ${plural(total, 'dead letter')}`, which, '?'],
    body: el('p', { class: 'second' }, 'They are taken out and sent nowhere. For seven days they are among the resolved ones, with the beginning of their payload.'),
    keep: 'Keep them', button: `Purge ${plural(total, 'dead letter')}`, confirm: filter.queue || 'dead letters', done: () => done(null),
    act: async () => {
      done(await ask('POST', '/v1/dead-letters/purge', { ...filter, expected: total, wait: false }));
      return 'Purging';
    },
  });
}

export function help() {
  const keys = [['/', 'find a queue'], ['g o', 'overview'], ['g q', 'queues'], ['g c', 'consumers'], ['g d', 'dead letters'], ['g a', 'agents'],
    ['j k', 'next and previous row'], ['Enter', 'open'], ['Esc', 'back'], ['p', 'pause'], ['?', 'this help']];
  dialog({
    title: 'Keys', button: 'Close', keep: 'Back', done: () => {}, act: async () => '',
    body: el('dl', { class: 'pairs' }, keys.map(([key, text]) => [el('dt', null, el('kbd', null, key)), el('dd', null, text)])),
  });
}
