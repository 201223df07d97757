// Which queue? Filtered, sorted and counted by the server.

import { get } from '../api.js';
import { send } from '../dialogs.js';
import { el, icon } from '../dom.js';
import { plural, shown } from '../format.js';
import { LIMIT, empty, filter, head, offsetOf, pages, panel, queueTable } from '../parts.js';

// Rows do not jump under the pointer: those that are shown keep their places until asked.
function steady(data, context) {
  const { held } = context, view = JSON.stringify(context.query);
  const order = data.queues.map((queue) => queue.name);
  if (held.order && held.view === view && context.hovered()) {
    const fresh = new Map(data.queues.map((queue) => [queue.name, queue]));
    const moved = order.filter((name, at) => held.order[at] !== name).length;
    const kept = held.order.map((name) => fresh.get(name) || held.rows.get(name)).filter(Boolean);
    kept.forEach((queue) => held.rows.set(queue.name, queue));
    return { rows: kept, moved };
  }
  Object.assign(held, { order, view, rows: new Map(data.queues.map((queue) => [queue.name, queue])) });
  return { rows: data.queues, moved: 0 };
}

export const queues = {
  load(context, signal) {
    const { search = '', sort = 'outlook' } = context.query;
    return get('/v1/queues', { search, sort, limit: LIMIT, offset: offsetOf(context) }, signal);
  },
  draw(data, context) {
    const { search = '', sort = 'outlook' } = context.query;
    const { rows, moved } = steady(data, context);
    const title = head('Queues', context.steers ? el('button', { type: 'button', class: 'button main', disabled: !context.canChange, onclick: () => send('', context.refresh) }, icon('send'), 'Send…') : null);
    if (!data.total && !search) {
      return [title, panel(null, empty('No mailbox yet', el('p', null, 'Make one from a shell:'),
        el('pre', { tabindex: '0' }, 'mq9 mailbox create agent.translator\nmq9 send agent.translator "translate the manual"')))];
    }
    return [title, panel(
      [filter('Filter by name', context), el('span', { class: 'grow' }),
        moved ? el('button', { type: 'button', class: 'button small', onclick: () => { context.held.order = null; context.redraw(); } }, `${plural(moved, 'row')} moved, refresh`) : null,
        el('span', { class: 'note third' }, sort === 'outlook' ? 'worst outlook first' : '')],
      rows.length ? queueTable(rows, context, sort, (next) => context.set({ sort: next, page: '' }))
        : empty(`No queue has “${shown(search)}” in its name`, el('button', { type: 'button', class: 'button', onclick: () => context.set({ search: '', page: '' }) }, 'Show all')),
      pages(data.total, data.queues.length, context))];
  },
};
