// Is something wrong? First that, then how things go.

import { get } from '../api.js';
import { levels, lines } from '../charts.js';
import { el, icon } from '../dom.js';
import { ago, count, millis, plural, rate, shown, size, whole } from '../format.js';
import { empty, head, numbers, panel, queueLink, queueTable } from '../parts.js';

const MOST = 5;
const place = ({ view, ...rest }) => (view === 'queue' ? queueLink(rest.name, rest.kind) : `/${view}${Object.keys(rest).length ? `?${new URLSearchParams(rest)}` : ''}`);

function line(entry, context) {
  return el('li', null, el('span', null, icon(entry.status, `is-${entry.status}`), el('span', { class: 'unseen' }, entry.status)),
    el('div', null, el('b', null, shown(entry.text)), entry.since ? el('div', { class: 'note second' }, 'since ', ago(entry.since, context.now)) : null),
    entry.link && entry.link.view !== 'overview' ? el('a', { class: 'button small', href: place(entry.link) }, 'Look at it') : null);
}

export const overview = {
  load: (context, signal) => get('/v1/overview', {}, signal),
  draw(data, context) {
    const { attention, broker, series } = data, n = data.numbers;
    const disk = broker.disk || {};
    const things = attention.length, more = things - MOST;
    const title = things ? (things === 1 ? '1 thing needs attention' : `${things} things need attention`) : 'Nothing needs attention';
    return [
      head(title),
      things ? el('section', { class: 'panel', 'aria-label': 'Needs attention' }, el('ul', { class: 'attention' },
        attention.slice(0, MOST).map((entry) => line(entry, context)), more > 0 ? el('li', null, el('span'), `${more} more`) : null)) : null,
      numbers([
        ['In', rate(n.rate_in), '/s', 'messages stored'],
        ['Out', rate(n.rate_delivered), '/s', `${rate(n.rate_acked)}/s acknowledged`],
        ['Waiting', count(n.waiting), '', `in ${count(data.counts.queues)} queues`, whole(n.waiting)],
        ['In flight', count(n.in_flight), '', `${count(n.delayed)} delayed`],
        ['Dead letters', count(n.dead_letters), '', 'not resolved'],
        ['Disk', disk.total ? Math.round(100 * (1 - disk.free / disk.total)) : '–', '%', disk.total ? `${size(disk.free)} of ${size(disk.total)} free` : ''],
      ]),
      el('div', { class: 'columns three' },
        panel(el('h2', null, 'Messages per second'), lines(series, [['sent', 'in', 'strong'], ['delivered', 'out', 'weak']], 'Messages per second')),
        panel([el('h2', null, 'Waiting, by priority'), el('span', { class: 'grow' }), el('span', { class: 'note third' }, 'each on its own scale')], levels(series, data.levels)),
        panel(el('h2', null, 'Time until safe on disk'), lines(series, [['commit_p99', '99 of 100 within', 'strong'], ['commit_p50', 'half within', 'weak']], 'Time until replies were true', millis, ''))),
      panel([el('h2', null, 'Falling behind'), el('span', { class: 'note third' }, 'worst outlook first'), el('span', { class: 'grow' }), el('a', { class: 'note second', href: '/queues' }, 'All queues')],
        data.behind.length ? queueTable(data.behind, context) : empty('No queue falls behind', el('p', null, 'Every group has been given what there is for it.'))),
      el('dl', { class: 'panel facts' }, [
        ['Up', broker.uptime], ['Sync', n.sync_p99 == null ? broker.sync : `${broker.sync}, ${millis(n.sync_p50)} at the median, ${millis(n.sync_p99)} at p99`], ['Memory', size(broker.memory)],
        ['Log', broker.store ? `${size(broker.store.log_bytes)} in ${plural(broker.store.segments, 'segment')}` : '–'],
        ['Still needed', broker.store ? size(broker.store.live_bytes) : '–'],
        ['Damage found', broker.damage ? count(broker.damage) : 'none'],
        ['Connections', `${count(data.counts.connections)}, ${broker.slow_consumers ? `${count(broker.slow_consumers)} cut off as slow` : 'none slow'}`],
      ].map(([word, value]) => el('div', null, el('dt', null, word), el('dd', null, value || '–')))),
    ];
  },
};
