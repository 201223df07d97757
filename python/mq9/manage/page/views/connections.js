// Who is connected.

import { get } from '../api.js';
import { el } from '../dom.js';
import { count, name, shown, size, zero } from '../format.js';
import { LIMIT, empty, head, offsetOf, pages, panel, table } from '../parts.js';

const COLUMNS = [['No.', 'number', 'cid'], ['Name'], ['User'], ['Address'], ['Language'], ['Up', 'number'], ['Subscriptions', 'number', 'subs'], ['In', 'number', 'msgs_from'], ['Out', 'number', 'msgs_to'], ['To be read', 'number', 'pending']];
const NOTHING = () => el('span', { class: 'zero' }, '–');

export const connections = {
  load: (context, signal) => get('/v1/connections', { sort: context.query.sort || 'cid', limit: LIMIT, offset: offsetOf(context) }, signal),
  draw(data, context) {
    const rows = data.connections.map((client) => el('tr', null,
      el('td', { class: 'number code' }, String(client.cid)),
      el('td', { class: 'wide' }, client.name ? name(client.name) : NOTHING()),
      el('td', { 'data-label': 'User', class: 'full' }, client.authorized_user ? name(client.authorized_user) : NOTHING()),
      el('td', { 'data-label': 'Address', class: 'code full' }, `${client.ip}:${client.port}`),
      el('td', { 'data-label': 'Language', class: 'full' }, shown(`${client.lang || '–'} ${client.version || ''}`).slice(0, 40)),
      el('td', { class: 'number', 'data-label': 'Up' }, client.uptime),
      el('td', { class: 'number', 'data-label': 'Subscriptions' }, zero(client.subscriptions)),
      el('td', { class: 'number', 'data-label': 'In' }, zero(client.in_msgs)),
      el('td', { class: 'number', 'data-label': 'Out' }, zero(client.out_msgs)),
      el('td', { class: 'number', 'data-label': 'To be read' }, zero(client.pending_bytes, size))));
    return [head('Connections', el('span', { class: 'note second' }, `${count(data.total)} open`)), panel(null,
      rows.length ? table('Connections', COLUMNS, rows, context.query.sort || 'cid', (next) => context.set({ sort: next.replace(/^-/, ''), page: '' })) : empty('Nobody is connected'),
      pages(data.total, rows.length, context))];
  },
};
