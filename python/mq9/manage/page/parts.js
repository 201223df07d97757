// Parts that several views share.

import { el, icon } from './dom.js';
import { count, duration, mix, name, outlook, rate, shown, size, whole, zero } from './format.js';

export const head = (title, ...rest) => el('div', { class: 'head' }, el('h1', null, title), el('span', { class: 'grow' }), rest);
export const panel = (header, ...rest) => el('section', { class: 'panel' }, header ? el('header', null, header) : null, rest);
export const empty = (title, ...rest) => el('div', { class: 'void' }, el('h2', null, title), rest);
export const queueLink = (queue, kind) => `/queue?name=${encodeURIComponent(queue)}${kind === 'stream' ? '&kind=stream' : ''}`;

export function numbers(list) {
  return el('dl', { class: 'panel numbers' }, list.map(([word, value, unit, under, title]) => el('div', null,
    el('dt', null, word), el('dd', { class: 'value', title }, value, unit ? el('small', null, unit) : null), el('dd', { class: 'under' }, under))));
}

export function choice(label, options, current, pick, small) {
  return el('span', { class: `choice ${small ? 'small' : ''}`, role: 'group', 'aria-label': label }, options.map(([value, word]) =>
    el('button', { type: 'button', 'aria-pressed': String(value === current), onclick: () => pick(value) }, word)));
}

// Others begin with the most.
const RISING = ['name', 'cid'];

// `columns` are [word, class, sort]; sorting is the server's.
export function table(caption, columns, rows, sort, pick) {
  const current = (sort || '').replace(/^-/, '');
  // A table that is wider than its window is moved with the keyboard as well.
  return el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption }, el('table', { class: 'cards' }, el('caption', { class: 'unseen' }, caption),
    el('thead', null, el('tr', null, columns.map(([word, kind, key]) => {
      const sorted = key && key === current;
      const turned = sorted && sort.startsWith('-');
      const up = RISING.includes(key) !== turned;
      const next = sorted && !turned ? `-${key}` : key;
      return el('th', { scope: 'col', class: kind, 'aria-sort': sorted ? (up ? 'ascending' : 'descending') : null },
        key && pick ? el('button', { type: 'button', onclick: () => pick(next) }, word, sorted ? (up ? ' ↑' : ' ↓') : '') : word);
    }))),
    el('tbody', null, rows)));
}

const COLUMNS = [['Name', '', 'name'], ['Waiting', 'number', 'depth'], ['By priority', ''], ['Oldest', 'number', 'oldest'], ['In /s', 'number', 'rate_in'],
  ['Out /s', 'number', 'rate_out'], ['Outlook', '', 'outlook'], ['In flight', 'number', 'in_flight'], ['Delayed', 'number', 'delayed'],
  ['Groups', 'number', 'consumers'], ['Size', 'number', 'bytes']];

export function queueTable(queues, context, sort, pick) {
  return table('Queues', COLUMNS, queues.map((queue) => el('tr', { class: 'open', 'data-key': `${queue.kind}:${queue.name}`, onclick: context.opener(queueLink(queue.name, queue.kind)) },
    el('td', { class: 'wide' }, el('span', { class: 'tagged' },
      el('a', { class: 'name', href: queueLink(queue.name, queue.kind) }, icon(queue.kind === 'stream' ? 'queues' : 'letter', 'third'), name(queue.name)),
      queue.kind === 'stream' ? el('span', { class: 'tag' }, 'stream') : null)),
    el('td', { class: 'number', 'data-label': 'Waiting' }, zero(queue.depth)),
    el('td', { class: 'full' }, mix(queue.levels)),
    el('td', { class: 'number', 'data-label': 'Oldest' }, queue.oldest_s == null ? el('span', { class: 'zero' }, '–') : duration(queue.oldest_s)),
    el('td', { class: 'number', 'data-label': 'In /s' }, zero(queue.rate_in, rate)),
    el('td', { class: 'number', 'data-label': 'Out /s' }, zero(queue.rate_out, rate)),
    el('td', { class: 'full' }, outlook(queue)),
    el('td', { class: 'number rare' }, zero(queue.in_flight)),
    el('td', { class: 'number rare' }, zero(queue.delayed)),
    el('td', { class: 'number rare' }, zero(queue.consumers)),
    el('td', { class: 'number rare' }, zero(queue.bytes, size)))), sort, pick);
}

export const LIMIT = 50;
const pageOf = (context) => Math.max(Number(context.query.page) || 1, 1);
export const offsetOf = (context) => (pageOf(context) - 1) * LIMIT;

export function pages(total, here, context) {
  const page = pageOf(context), offset = offsetOf(context);
  const go = (next) => context.set({ page: next, id: '', at: '' });
  return el('div', { class: 'foot' }, el('span', { title: whole(total) }, `${count(here ? offset + 1 : 0)}–${count(offset + here)} of ${count(total)}`), el('span', { class: 'grow' }),
    el('button', { type: 'button', class: 'button small', disabled: page <= 1, onclick: () => go(page - 1) }, 'Previous'),
    el('button', { type: 'button', class: 'button small', disabled: offset + here >= total, onclick: () => go(page + 1) }, 'Next'));
}

// What is typed is in the address, and in the field.
export function filter(label, context) {
  return el('label', { class: 'field' }, icon('search'), el('span', { class: 'unseen' }, label),
    el('input', { type: 'search', id: 'filter', value: context.query.search || '', placeholder: label, autocomplete: 'off',
      oninput: (event) => context.set({ search: event.currentTarget.value, page: '' }, true) }));
}

export function members(group) {
  if (group.members) return count(group.members);
  // For a minute it may just be between two requests.
  if (!group.pending || group.used_s < 60) return el('span', { class: 'zero' }, 'none');
  return el('span', { class: 'outlook is-broken' }, icon('broken', 'is-broken'), 'none');
}

// Which a stream stores: the first of them, and how many more.
export function subjects(queue, most = 5) {
  const more = queue.subjects.length - most;
  return el('bdi', { title: shown(queue.subjects.slice(0, 100).join(', ')) }, queue.subjects.slice(0, most).map((subject, at) => [at ? ', ' : '', el('code', null, shown(subject))]), more > 0 ? ` and ${count(more)} more` : '');
}

export const pairs = (list) => el('dl', { class: 'pairs' }, list.filter(([, value]) => value != null && value !== '').map(([word, value]) =>
  [el('dt', null, word), el('dd', null, value)]));
