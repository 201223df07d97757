// Who lags? Groups of all queues, those with the most work first.

import { get } from '../api.js';
import { el } from '../dom.js';
import { duration, name, rate, shown, zero } from '../format.js';
import { LIMIT, empty, filter, head, members, offsetOf, pages, panel, queueLink, table } from '../parts.js';

const COLUMNS = [['Group', '', 'name'], ['Queue'], ['Behind', 'number', 'lag'], ['In flight', 'number', 'in_flight'], ['Oldest', 'number'], ['Given again', 'number', 'redelivered'], ['Acks /s', 'number'], ['p95', 'number'], ['Members', 'number', 'members']];

function row(group, context) {
  return el('tr', { class: 'open', onclick: context.opener(queueLink(group.queue, group.kind)) },
    el('td', { class: 'wide' }, el('a', { class: 'name', href: queueLink(group.queue, group.kind) }, name(group.name))),
    el('td', { class: 'wide' }, el('span', { class: 'tagged' }, name(group.queue), group.kind === 'stream' ? el('span', { class: 'tag' }, 'stream') : null)),
    el('td', { class: 'number', 'data-label': 'Behind' }, zero(group.lag)),
    el('td', { class: 'number', 'data-label': 'In flight' }, zero(group.ack_pending)),
    el('td', { class: 'number', 'data-label': 'Oldest' }, duration(group.lag_s)),
    el('td', { class: 'number', 'data-label': 'Given again' }, zero(group.redelivered)),
    el('td', { class: 'number', 'data-label': 'Acks /s' }, zero(group.ack_rate, rate)),
    el('td', { class: 'number', 'data-label': 'p95' }, duration(group.p95_s)),
    el('td', { class: 'number', 'data-label': 'Members' }, members(group)));
}

export const consumers = {
  load: (context, signal) => get('/v1/consumers', { search: context.query.search, sort: context.query.sort || 'lag', limit: LIMIT, offset: offsetOf(context) }, signal),
  draw(data, context) {
    const { search = '', sort = 'lag' } = context.query;
    if (!data.total && !search) {
      return [head('Consumers'), panel(null, empty('No group yet', el('p', null, 'A group begins with its first FETCH:'), el('pre', { tabindex: '0' }, 'mq9 fetch agent.translator --group workers')))];
    }
    return [head('Consumers'), panel(filter('Filter by group or queue', context),
      data.consumers.length ? table('Groups of all queues', COLUMNS, data.consumers.map((group) => row(group, context)), sort, (next) => context.set({ sort: next, page: '' })) : empty(`No group or queue has “${shown(search)}” in its name`),
      pages(data.total, data.consumers.length, context))];
  },
};
