// Who can do this, and is it there? By words or by meaning.

import { get } from '../api.js';
import { send } from '../dialogs.js';
import { el, icon } from '../dom.js';
import { ago, count, shown } from '../format.js';
import { LIMIT, choice, empty, head, pages, pairs, panel, queueLink } from '../parts.js';
import { copy } from '../payload.js';

const address = (agent) => String(agent.mailbox || '').replace(/^mq9:\/\/[^/]*\//, '');
const title = (agent) => shown(agent.name || address(agent) || 'without a name');
const text = (agent) => shown(typeof agent.description === 'string' ? agent.description : '');
const SEPARATE = new Set(['name', 'description', 'mailbox']);

// Whether it is there: in words, and not by colour alone.
function presence(status, now) {
  const [kind, word] = status.alive ? ['ok', 'alive'] : ['silent', 'away'];
  return el('span', { class: 'presence note second' }, el('span', { class: `dot ${kind}`, 'aria-hidden': 'true' }), `${word}, seen `, ago(status.last_seen, now));
}

function card(agent, status, context) {
  const plain = ([key, value]) => !SEPARATE.has(key) && ['string', 'number', 'boolean'].includes(typeof value);
  const facts = Object.entries(agent).filter(plain).map(([key, value]) => [shown(key), el('bdi', null, shown(value))]);
  const where = address(agent);
  const json = JSON.stringify(agent, null, 2);
  return panel([el('div', { class: 'grow' }, el('h2', null, el('bdi', null, title(agent))), el('p', { class: 'note second' }, el('bdi', null, text(agent)))),
    context.steers && where ? el('button', { type: 'button', class: 'button small', disabled: !context.canChange, onclick: () => send(where, context.refresh) }, icon('send'), 'Send…') : null],
  pairs([['seen', presence(status, context.now)], ['registered', ago(status.registered, context.now)],
    ['last report', status.report ? el('code', null, shown(JSON.stringify(status.report))) : null], ['mailbox', where ? el('a', { class: 'code', href: queueLink(where) }, shown(where)) : null], ...facts]),
  el('div', { class: 'payload' }, el('div', { class: 'tools' }, el('h2', null, 'Card'), el('span', { class: 'grow' }),
    el('button', { type: 'button', class: 'button small quiet', onclick: () => copy(json) }, icon('copy'), 'Copy')),
  el('pre', { tabindex: '0', 'aria-label': 'Card' }, json.split('\n').map(shown).join('\n'))));
}

export const agents = {
  load(context, signal) {
    const { q = '', by = 'meaning', page = '1' } = context.query;
    return get('/v1/agents', { q, by, limit: LIMIT, page: Math.max(Number(page) || 1, 1) }, signal);
  },
  draw(data, context) {
    const { q = '', by = 'meaning' } = context.query;
    const find = (event) => { event.preventDefault(); context.set({ q: event.currentTarget.elements.question.value, page: '', at: '' }); };
    const question = el('form', { class: 'ask', role: 'search', 'aria-label': 'Find agents', onsubmit: find },
      icon('search'), el('label', { class: 'unseen', for: 'question' }, 'What should the agent be able to do?'),
      el('input', { id: 'question', name: 'question', value: q, placeholder: 'What should the agent be able to do?', autocomplete: 'off' }),
      choice('Search by', [['meaning', 'Meaning'], ['words', 'Words']], by, (value) => context.set({ by: value, page: '', at: '' }), true),
      el('button', { type: 'submit', class: 'button main' }, 'Find'));
    const heading = head('Agents', el('span', { class: 'note second' }, `${count(data.total)} ${q ? 'match' : 'registered'}`));
    if (!data.agents.length) {
      return [heading, question, panel(null, q ? empty('No agent matches') : empty('No agent yet', el('p', null, 'Agents register themselves, or from a shell:'),
        el('pre', { tabindex: '0' }, 'mq9 agent register --help')))];
    }
    const at = Math.min(Number(context.query.at) || 0, data.agents.length - 1);
    return [heading, question, el('div', { class: 'columns agents-card' },
      panel(el('h2', null, q ? 'Best match first' : 'All, newest last'), el('ul', { class: 'pick' }, data.agents.map((agent, place) => el('li', null,
        el('button', { type: 'button', 'aria-current': String(place === at), onclick: () => context.set({ at: place }, true) },
          el('b', null, el('bdi', null, title(agent))), el('span', { class: 'score' }, data.scores ? data.scores[place].toFixed(2) : ''),
          el('span', { class: 'note second' }, el('bdi', null, text(agent))), presence(data.statuses[place], context.now))))),
      pages(data.total, data.agents.length, context)),
      card(data.agents[at], data.statuses[at], context))];
  },
};
