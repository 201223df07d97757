// Why does a queue wait, and what is in it? Looking takes nothing.

import { ask, get, path } from '../api.js';
import { dialog, purge, remove, removeGroup, send, sendToStream } from '../dialogs.js';
import { el, icon } from '../dom.js';
import { ago, count, duration, exact, level, levelColour, levelName, levelNumber, name, outlook, plural, rate, shown, size, whole, zero } from '../format.js';
import { LIMIT, choice, empty, members, numbers, pairs, panel, subjects, table } from '../parts.js';
import { FIRST, copy, payload, preview } from '../payload.js';

function lanes(data) {
  const most = Math.max(...Object.values(data.lanes), 1);
  const { policy } = data;
  const wait = policy.ack_wait_ms ? `Ack wait ${duration(policy.ack_wait_ms / 1000)}` : 'Ack wait as the broker says';
  const dead = policy.dead_letter ? `, ${policy.max_deliver ? `${policy.max_deliver} deliveries, ` : ''}then ` : '';
  return panel([el('h2', null, 'Lanes'), el('span', { class: 'note third' }, 'highest priority leaves first')],
    Object.keys(data.lanes).length ? el('div', { class: 'lanes' }, Object.entries(data.lanes).map(([at, n]) => [
      el('span', null, `${at} ${levelName(at)}`),
      el('span', null, el('span', { class: 'bar', vars: { width: `${100 * n / most}%`, background: levelColour(at) } })),
      el('span', { class: 'number', title: whole(n) }, count(n)),
    ])) : el('p', { class: 'void note' }, 'Nothing waits.'),
    el('div', { class: 'foot' }, wait, dead, policy.dead_letter ? name(policy.dead_letter) : null));
}

function groups(data, context) {
  const rows = data.groups.map((group) => el('tr', null,
    el('td', { class: 'wide' }, el('span', { class: 'name' }, name(group.name))),
    el('td', { class: 'number', 'data-label': 'Behind' }, zero(group.lag)),
    el('td', { class: 'number', 'data-label': 'In flight' }, zero(group.ack_pending)),
    el('td', { class: 'number', 'data-label': 'Given again' }, group.delivered ? `${(100 * group.redelivered / group.delivered).toFixed(group.redelivered ? 1 : 0)}%` : '–'),
    el('td', { class: 'number', 'data-label': 'Acks /s' }, zero(group.ack_rate, rate)),
    el('td', { class: 'number', 'data-label': 'Used' }, `${duration(group.used_s)} ago`),
    el('td', { class: 'number', 'data-label': 'Members' }, members(group)),
    context.steers ? el('td', { class: 'act' }, el('button', { type: 'button', class: 'button small quiet', 'aria-label': `Delete ${shown(group.name)}…`, disabled: !context.canChange, onclick: () => removeGroup(data, group, context.refresh) }, 'Delete…')) : null));
  const columns = [['Group'], ['Behind', 'number'], ['In flight', 'number'], ['Given again', 'number'], ['Acks /s', 'number'], ['Used', 'number'], ['Members', 'number'], ...(context.steers ? [[el('span', { class: 'unseen' }, 'Delete')]] : [])];
  const [word, one] = data.kind === 'stream' ? ['Consumers', 'consumer'] : ['Groups', 'group'];
  columns[0] = [data.kind === 'stream' ? 'Consumer' : 'Group'];
  const beyond = data.consumers > rows.length ? `, the first ${rows.length} are shown` : '';
  return panel([el('h2', null, word), el('span', { class: 'note third' }, plural(data.consumers, one), beyond)],
    rows.length ? table(word, columns, rows) : empty(`No ${one} reads here`, el('p', null, `The ${data.kind} keeps its messages until somebody ${data.kind === 'stream' ? 'makes a consumer' : 'fetches them'}.`)));
}

function messages(data, context) {
  const { show = 'newest', msg } = context.query;
  const list = data.messages, isStream = data.kind === 'stream';
  const chosen = list.find((message) => String(message.msg_id) === msg) || list[0];
  const due = show === 'delayed' ? 'Due' : 'Age';
  const rows = list.map((message) => el('tr', { class: 'open', 'aria-selected': String(message === chosen), onclick: () => context.set({ msg: message.msg_id }, true) },
    el('td', { class: 'number code' }, el('a', { href: `/queue?${new URLSearchParams({ ...context.query, msg: message.msg_id })}` }, String(message.msg_id))),
    isStream ? el('td', { class: 'wide' }, el('span', { class: 'name' }, name(message.subject))) : el('td', null, level(levelNumber(message.priority), message.priority)),
    el('td', { class: 'number', 'data-label': due }, show === 'delayed'
      ? el('span', { title: exact(message.create_time) }, `in ${duration(Math.max(message.create_time - context.now, 0))}`) : ago(message.create_time, context.now)),
    el('td', { class: 'preview' }, el('bdi', null, preview(message)))));
  const last = list.length ? list[list.length - 1].msg_id : null;
  return panel([el('h2', null, 'Messages'), el('span', { class: 'note third' }, 'looking takes nothing and moves no group'), el('span', { class: 'grow' }),
    choice('Which', [['newest', 'Newest'], ['oldest', 'From the oldest'], ...(isStream ? [] : [['delayed', 'Delayed']])], show, (value) => context.set({ show: value, msg: '', after: '' }), true)],
  list.length ? el('div', { class: 'split' },
    el('div', null, table('Messages', [['Id', 'number'], [isStream ? 'Subject' : 'Priority'], [due, 'number'], ['Payload']], rows),
      show === 'newest' ? null : el('div', { class: 'foot' }, `${list.length} shown`, el('span', { class: 'grow' }),
        el('button', { type: 'button', class: 'button small', disabled: !context.query.after, onclick: () => context.set({ after: '', msg: '' }) }, 'From the start'),
        el('button', { type: 'button', class: 'button small', disabled: list.length < LIMIT && !data.more, onclick: () => context.set({ after: last, msg: '' }) }, 'Next'))),
    one(chosen, data, context)) : empty('No messages here', el('p', null, show === 'delayed' ? 'None waits to become due.' : 'Send one, or wait.')));
}

function one(found, { kind }, context) {
  const { held, query } = context;
  const delayed = query.show === 'delayed' ? true : undefined;
  const load = () => get(path('queues', query.name, 'messages', found.msg_id), { kind, delayed });
  const message = held.whole?.msg_id === found.msg_id ? held.whole : found;
  const redraw = async (all) => {
    held.all = all ? found.msg_id : null;
    if (all && found.cut) held.whole = await load();
    context.redraw();
  };
  const headers = Object.entries(message.headers || {}).map(([key, values]) => [shown(key), el('bdi', null, shown(values.join(', ')))]);
  return el('div', { class: 'payload' },
    el('div', { class: 'tools' }, el('b', { class: 'code' }, String(message.msg_id)), kind === 'stream' ? null : level(levelNumber(message.priority), message.priority), el('span', { class: 'grow' }),
      context.steers && context.query.show !== 'delayed' ? el('button', { type: 'button', class: 'button small quiet', disabled: !context.canChange, onclick: () => deleteOne(message, kind, context) }, 'Delete…') : null),
    pairs([['sent', message.create_time ? [ago(message.create_time, context.now), ', ', exact(message.create_time)] : null],
      ['subject', message.subject ? el('bdi', null, shown(message.subject)) : null], ['key', message.key ? el('bdi', null, shown(message.key)) : null], ['tags', message.tags ? shown(message.tags.join(', ')) : null], ...headers]),
    payload(message, redraw, held.all === message.msg_id, load));
}

function deleteOne(message, kind, context) {
  dialog({
    title: `Delete message ${message.msg_id}?`, body: el('p', { class: 'second' }, 'It is removed for good and does not become a dead letter.'),
    keep: 'Keep it', button: 'Delete 1 message', done: context.refresh,
    act: async () => { await ask('DELETE', `${path('queues', context.query.name, 'messages', message.msg_id)}?kind=${kind}`); return 'Deleted'; },
  });
}

export const queue = {
  async load(context, signal) {
    const { name: address = '', show = 'newest', after, kind } = context.query;
    const details = await get(path('queues', address), { kind }, signal);
    const wanted = { limit: LIMIT, after, preview: FIRST, kind: details.kind };
    if (show !== 'newest') wanted[show] = true;
    const found = await get(`${path('queues', address)}/messages`, wanted, signal);
    // The newest is what one looks for first.
    return { ...details, more: found.more, messages: show === 'newest' ? found.messages.reverse() : found.messages };
  },
  draw(data, context) {
    const button = (word, act, kind = '') => el('button', { type: 'button', class: `button ${kind}`, disabled: !context.canChange, onclick: act }, kind ? icon('send') : null, word);
    const isStream = data.kind === 'stream';
    const removed = (problem) => (problem ? context.refresh() : context.go('/queues'));
    return [
      el('nav', { class: 'note third', 'aria-label': 'Path' }, el('a', { href: '/queues' }, 'Queues'), ' /'),
      el('div', { class: 'head' }, el('h1', { class: 'code' }, el('bdi', null, shown(data.name))),
        el('button', { type: 'button', class: 'button small square quiet', 'aria-label': 'Copy the name', onclick: () => copy(data.name) }, icon('copy')),
        ['work_queue', 'workqueue'].includes(data.policy.retention) ? el('span', { class: 'tag' }, 'work queue') : null, data.policy.public ? el('span', { class: 'tag' }, 'public') : null, isStream ? el('span', { class: 'tag' }, 'stream') : null,
        el('span', { class: 'grow' }),
        context.steers ? [button('Send…', () => (isStream ? sendToStream(data, context.refresh) : send(data.name, context.refresh)), 'main'), button('Purge messages…', () => purge(data, context.refresh)),
          button(isStream ? 'Delete stream…' : 'Delete queue…', () => remove(data, removed))] : null),
      data.subjects.length ? el('p', { class: 'second' }, 'Stores ', subjects(data), data.declared ? '. The broker’s configuration declares it.' : '') : null,
      data.desc ? el('p', { class: 'second' }, shown(data.desc)) : null,
      numbers([
        [isStream ? 'Messages' : 'Waiting', count(data.depth), '', outlook(data), whole(data.depth)],
        ['Oldest', duration(data.oldest_s), '', data.oldest_s == null ? 'nothing here' : exact(context.now - data.oldest_s)],
        ['In', rate(data.rate_in), '/s', `${count(data.next_id)} so far`],
        ['Out', rate(data.rate_out), '/s', 'left the queue'],
        ['In flight', count(data.in_flight), '', data.policy.max_ack_pending ? `of at most ${count(data.policy.max_ack_pending)} a group` : 'given out, not acknowledged'],
        ['Delayed', count(data.delayed), '', size(data.bytes)],
      ]),
      isStream ? groups(data, context) : el('div', { class: 'columns lanes-groups' }, lanes(data), groups(data, context)), messages(data, context),
    ];
  },
};
