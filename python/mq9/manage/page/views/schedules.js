// What is sent at set times.

import { get } from '../api.js';
import { el, icon } from '../dom.js';
import { ago, count, duration, name, shown } from '../format.js';
import { empty, head, panel, table } from '../parts.js';

const COLUMNS = [['Name'], ['Times'], ['Sent to'], ['Next', 'number'], ['Last', 'number'], ['State']];

function state(schedule) {
  if (!schedule.late && !schedule.problem) return el('span', { class: 'second' }, 'in time');
  const kind = schedule.late ? 'broken' : 'attention';
  return el('span', { class: `outlook is-${kind}` }, icon(kind, `is-${kind}`), shown(schedule.problem || 'late'));
}

function next(schedule, now) {
  if (schedule.due == null) return el('span', { class: 'zero' }, 'never');
  return schedule.due > now ? `in ${duration(schedule.due - now)}` : 'now';
}

export const schedules = {
  load: (context, signal) => get('/v1/schedules', {}, signal),
  draw(data, { now }) {
    const rows = data.schedules.map((schedule) => el('tr', null,
      el('td', { class: 'wide' }, name(schedule.name)),
      el('td', { class: 'code full', 'data-label': 'Times' }, `${schedule.cron} `, el('span', { class: 'second' }, schedule.timezone)),
      el('td', { class: 'full', 'data-label': 'Sent to' }, name(schedule.target)),
      el('td', { class: 'number', 'data-label': 'Next' }, next(schedule, now)),
      el('td', { class: 'number', 'data-label': 'Last' }, ago(schedule.fired, now)),
      el('td', { class: 'full' }, state(schedule))));
    return [head('Schedules', el('span', { class: 'note second' }, count(data.total))), panel(null,
      rows.length ? table('Schedules', COLUMNS, rows) : empty('Nothing is sent at set times',
        el('p', { class: 'second' }, 'Schedules stand in the configuration: mq9 { schedules: [ ... ] }')))];
  },
};
