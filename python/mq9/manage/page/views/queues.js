// Which queue? Filtered, sorted and counted by the server.

import { get } from '../api.js';
import { send } from '../dialogs.js';
import { el, icon } from '../dom.js';
import { plural, shown } from '../format.js';
import { LIMIT, choice, empty, filter, head, offsetOf, pages, panel, queueTable } from '../parts.js';

// Rows do not jump under the pointer: those that are shown keep their places until asked.
function steady(data, context) {
  const { held } = context, view = JSON.stringify(context.query);
  const key = (queue) => `${queue.kind}:${queue.name}`;
  const order = data.queues.map(key);
  if (held.order && held.view === view && context.hovered()) {
    const fresh = new Map(data.queues.map((queue) => [key(queue), queue]));
    const moved = order.filter((each, at) => held.order[at] !== each).length;
    const kept = held.order.map((each) => fresh.get(each) || held.rows.get(each)).filter(Boolean);
    kept.forEach((queue) => held.rows.set(key(queue), queue));
    return { rows: kept, moved };
  }
  Object.assign(held, { order, view, rows: new Map(data.queues.map((queue) => [key(queue), queue])) });
  return { rows: data.queues, moved: 0 };
}

export const queues = {
  load(context, signal) {
    const { search = '', sort = 'outlook', kind } = context.query;
    return get('/v1/queues', { search, sort, kind, limit: LIMIT, offset: offsetOf(context) }, signal);
  },
  draw(data, context) {
    const { search = '', sort = 'outlook', kind = '' } = context.query;
    const { rows, moved } = steady(data, context);
    const title = head('Queues', context.steers ? el('button', { type: 'button', class: 'button main', disabled: !context.canChange, onclick: () => send('', context.refresh) }, icon('send'), 'Send…') : null);
    if (!data.total && !search && !kind) {
      return [title, panel(null, empty('No mailbox yet', el('p', null, 'Make one from a shell:'),
        el('pre', { tabindex: '0' }, 'mq9 mailbox create agent.translator\nmq9 send agent.translator "translate the manual"')))];
    }
    return [title, panel(
      [filter('Filter by name', context), choice('Kind', [['', 'All'], ['mailbox', 'Mailboxes'], ['stream', 'Streams']], kind, (value) => context.set({ kind: value, page: '' }), true), el('span', { class: 'grow' }),
        moved ? el('button', { type: 'button', class: 'button small', onclick: () => { context.held.order = null; context.redraw(); } }, `${plural(moved, 'row')} moved, refresh`) : null,
        el('span', { class: 'note third' }, sort === 'outlook' ? 'worst outlook first' : '')],
      rows.length ? queueTable(rows, context, sort, (next) => context.set({ sort: next, page: '' }))
        : empty(search ? `No queue has “${shown(search)}” in its name` : kind === 'stream' ? 'No stream yet' : 'No mailbox yet', el('button', { type: 'button', class: 'button', onclick: () => context.set({ search: '', kind: '', page: '' }) }, 'Show all')),
      pages(data.total, data.queues.length, context))];
  },
};
