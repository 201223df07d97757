// The frame: where we are, who asks, what is live. Views know what they show; this knows when.

import { Refused, ServerGone, get, maySteer, readSession, session, signIn, signOut } from './api.js';
import { help } from './dialogs.js';
import { el, icon, morphChildren } from './dom.js';
import { brief, clock, count, duration, settings, shown } from './format.js';
import { empty, head, panel } from './parts.js';
import { say } from './payload.js';
import { agents } from './views/agents.js';
import { connections } from './views/connections.js';
import { consumers } from './views/consumers.js';
import { deadLetters } from './views/dead_letters.js';
import { overview } from './views/overview.js';
import { queue } from './views/queue.js';
import { queues } from './views/queues.js';
import { schedules } from './views/schedules.js';

const VIEWS = { '/': overview, '/queues': queues, '/queue': queue, '/consumers': consumers, '/dead-letters': deadLetters, '/agents': agents, '/schedules': schedules, '/connections': connections };
const LINKS = [['/', 'overview', 'Overview'], ['/queues', 'queues', 'Queues', 'queues'], ['/consumers', 'consumers', 'Consumers', 'consumers'],
  ['/dead-letters', 'letter', 'Dead letters', 'dead_letters'], ['/agents', 'agents', 'Agents'], ['/schedules', 'clock', 'Schedules'],
  ['/connections', 'connections', 'Connections', 'connections']];
// What fits at the bottom of a phone, and its word there.
const TABS = { '/': 'Overview', '/queues': 'Queues', '/consumers': 'Groups', '/dead-letters': 'Letters', '/agents': 'Agents' };
const EVERY_MS = 2000, SLOW_MS = 300;

const page = { data: null, at: 0, state: null, problem: null, serverGone: 0, paused: false, held: {}, turn: 0, timer: 0, abort: null, signed: '', ended: '' };

const query = () => Object.fromEntries(new URLSearchParams(location.search));
const view = () => VIEWS[location.pathname] || overview;

const context = {
  get now() { return page.state?.now ?? Date.now() / 1000; },
  get query() { return query(); },
  get canChange() { return maySteer() && !page.state?.broker.gone_since && !page.serverGone; },
  get steers() { return maySteer(); },
  // What a view remembers as long as it is shown.
  get held() { return page.held; },
  go(path) { navigate(path); },
  // Changes the address without leaving the view.
  set(changes, replace) {
    const next = { ...query(), ...changes };
    const given = Object.entries(next).filter(([, value]) => value !== '' && value != null);
    const text = new URLSearchParams(given).toString();
    history[replace ? 'replaceState' : 'pushState'](null, '', location.pathname + (text ? `?${text}` : ''));
    refresh();
  },
  opener: (path) => (event) => { if (!event.target.closest('a, button, input')) navigate(path); },
  redraw: () => draw(),
  refresh: () => refresh(),
  hovered: () => document.querySelector('main tbody:hover, main tbody:focus-within') != null,
};

function navigate(path) {
  history.pushState(null, '', path);
  arrive();
}

function arrive() {
  Object.assign(page, { data: null, problem: null, held: {} });
  scrollTo(0, 0);
  // Now, not when the answer is there: by then somebody may be typing elsewhere.
  document.getElementById('main')?.focus({ preventScroll: true });
  refresh();
}

// One request at a time; the next begins a while after the answer, and none while nobody looks.
async function refresh() {
  const turn = page.turn += 1;
  clearTimeout(page.timer);
  page.abort?.abort();
  const abort = page.abort = new AbortController();
  const late = setTimeout(() => { if (!page.data) draw(); }, SLOW_MS);
  try {
    await readWho();
    if (turn !== page.turn) return;
    if (session.role !== 'none') {
      const state = await get('/v1/state', {}, abort.signal);
      if (turn !== page.turn) return;
      // Known also if the view cannot be had: a broker that is gone answers nothing else.
      Object.assign(page, { state, serverGone: 0 });
      const data = await view().load(context, abort.signal);
      if (turn !== page.turn) return;
      Object.assign(page, { data, problem: null, at: Date.now() });
    }
  } catch (error) {
    if (turn !== page.turn || error.name === 'AbortError') return;
    if (error instanceof ServerGone) page.serverGone ||= Date.now() / 1000;
    else if (error instanceof Refused && error.status === 401) await readWho().catch(() => { /* asked again by the next */ });
    else if (error.status === 503 && page.data && page.state) {
      // The banner says it; what is shown is from before.
      page.state.broker.gone_since ||= Date.now() / 1000;
      Object.assign(page, { problem: null, serverGone: 0 });
    } else { page.problem = error; page.serverGone = 0; }
  } finally {
    clearTimeout(late);
  }
  if (turn !== page.turn) return;
  draw();
  schedule();
}

function schedule() {
  clearTimeout(page.timer);
  if (!page.paused && !document.hidden && session.role !== 'none') page.timer = setTimeout(refresh, EVERY_MS);
}

// It may have changed: another tab signed out or in, rights were taken away, or time ran out.
async function readWho() {
  const { user, role } = session;
  await readSession();
  if (session.role !== 'none' || !role || role === 'none') return;
  Object.assign(page, { data: null, state: null, problem: null, ended: user });
  say('Your session has ended');
}

function banner() {
  if (page.serverGone) {
    return el('div', { class: 'banner', role: 'alert' }, icon('broken', 'is-broken'), el('span', { class: 'grow' },
      el('b', null, `The server of this page does not answer since ${clock(page.serverGone)}.`), ' The broker may be fine. What you see is from then.'),
    el('button', { type: 'button', class: 'button small', onclick: refresh }, 'Try now'));
  }
  const since = page.state?.broker.gone_since;
  if (!since) return null;
  return el('div', { class: 'banner', role: 'alert' }, icon('broken', 'is-broken'), el('span', { class: 'grow' },
    el('b', null, `The broker has not answered since ${clock(since)} (${duration(context.now - since)}).`),
    ' What you see is from then. Nothing can be changed until it is back; this page comes back by itself.'),
  el('button', { type: 'button', class: 'button small', onclick: refresh }, 'Try now'));
}

function body() {
  if (session.role === 'none') return signInForm();
  if (!page.data && page.problem) {
    return [head('This cannot be shown'), panel(null, empty(shown(page.problem.message),
      el('button', { type: 'button', class: 'button', onclick: refresh }, 'Try again')))];
  }
  if (!page.data) return el('section', { class: 'panel', 'aria-busy': 'true', 'aria-label': 'Loading' }, [70, 90, 60, 80, 75, 50].map((part) => el('span', { class: 'bone', vars: { width: `${part}%` } })));
  const shownNow = view().draw(page.data, context);
  return page.problem ? [el('p', { class: 'wrong', role: 'alert' }, shown(page.problem.message)), shownNow] : shownNow;
}

function signInForm() {
  const wrong = el('p', { class: 'wrong note', role: 'alert', id: 'sign-in-wrong' }, page.signed);
  const form = el('form', { id: 'sign-in', method: 'post' }, el('h1', null, 'Sign in'),
    el('p', { class: 'second' }, page.ended ? 'Your session has ended. Sign in, and you are back here.' : 'As an operator of the broker.'),
    el('label', { class: 'field' }, el('span', { class: 'unseen' }, 'User'), el('input', { name: 'user', value: page.ended || null, autocomplete: 'username', required: true, placeholder: 'User' })),
    el('label', { class: 'field' }, el('span', { class: 'unseen' }, 'Password'), el('input', { name: 'password', type: 'password', autocomplete: 'current-password', placeholder: 'Password' })),
    wrong, el('button', { type: 'submit', class: 'button main' }, 'Sign in'));
  form.onsubmit = async (event) => {
    event.preventDefault();
    const { user, password } = event.currentTarget.elements;
    try {
      await signIn(user.value, password.value);
      page.signed = page.ended = '';
      await refresh();
    } catch (error) {
      // What was typed stays, whoever was here before.
      Object.assign(page, { signed: error.message, ended: '' });
      draw();
    }
  };
  return el('div', { class: 'panel void' }, form);
}

function links(words) {
  const here = location.pathname === '/queue' ? '/queues' : location.pathname;
  const wanted = words ? LINKS.filter(([path]) => words[path]) : LINKS;
  return wanted.map(([path, picture, word, counted]) => {
    const n = counted && page.state ? page.state.counts[counted] : null;
    const hot = counted === 'dead_letters' && n > 0;
    return el('a', { href: path, class: TABS[path] ? 'tabbed' : null, 'aria-current': path === here ? 'page' : null }, icon(picture), words?.[path] || word,
      n == null ? null : el('span', { class: `count ${hot ? 'hot' : ''}`, title: count(n) }, brief(n)));
  });
}

function frame() {
  const gone = page.serverGone || page.state?.broker.gone_since;
  const broker = page.state?.broker;
  const brand = () => el('a', { class: 'brand', href: '/' }, el('img', { src: '/page/icon.svg', alt: '' }),
    el('span', null, 'mq9', el('small', { title: broker?.name }, broker ? shown(`${(broker.name.length > 40 ? broker.name.slice(0, 8) : broker.name)} · ${broker.version}`) : '')));
  const zone = (utc) => { settings.utc = utc; localStorage.setItem('mq9-zone', utc ? 'utc' : 'local'); draw(); };
  return el('div', { class: `frame ${gone ? 'stale' : ''}` },
    el('aside', { class: 'side' }, brand(), el('nav', { 'aria-label': 'Views' }, links()),
      el('div', { class: 'who note' }, el('span', { class: 'grow' }, el('b', { title: shown(session.user) }, shown(session.user) || 'this machine'),
        el('span', { class: 'third' }, session.role === 'steer' ? 'may steer' : session.role === 'look' ? 'may look' : 'not signed in')),
      session.user ? el('button', { type: 'button', class: 'button small quiet', onclick: leave }, 'Sign out') : null)),
    el('div', null,
      el('header', { class: 'top' }, el('span', { class: 'narrow' }, brand()),
        el('form', { class: 'broad', role: 'search', onsubmit: find }, el('label', { class: 'field' }, icon('search'), el('span', { class: 'unseen' }, 'Find a queue'),
          el('input', { type: 'search', id: 'find', name: 'find', placeholder: 'Find a queue', autocomplete: 'off' }), el('kbd', { 'aria-hidden': 'true' }, '/'))),
        el('span', { class: 'grow' }),
        el('span', { class: 'live note' }, el('span', { class: `dot ${gone ? 'broken' : page.paused ? 'silent' : ''}` }), gone ? 'Not connected' : page.paused ? 'Paused' : 'Live'),
        el('button', { type: 'button', class: 'button small quiet broad', 'aria-pressed': String(page.paused), onclick: pause }, icon(page.paused ? 'play' : 'pause'), page.paused ? 'Go on' : 'Pause'),
        el('span', { class: 'choice small broad', role: 'group', 'aria-label': 'Times are shown in' },
          el('button', { type: 'button', 'aria-pressed': String(settings.utc), onclick: () => zone(true) }, 'UTC'),
          el('button', { type: 'button', 'aria-pressed': String(!settings.utc), onclick: () => zone(false) }, 'Local')),
        el('button', { type: 'button', class: 'button small square quiet', 'aria-label': 'Light or dark', onclick: turnTheme }, icon('theme'))),
      el('div', { id: 'banner' }, banner()),
      el('main', { id: 'main', tabindex: '-1' }, body())),
    el('nav', { class: 'tabs', 'aria-label': 'Views, at the bottom' }, links(TABS)));
}

function draw() {
  const app = document.getElementById('app');
  morphChildren(app, [frame()]);
  document.title = `${document.querySelector('main h1')?.textContent || 'mq9'} · mq9`;
  const attention = page.data?.attention;
  if (attention && attention.length !== page.told) {
    page.told = attention.length;
    say(attention.length ? `${attention.length} things need attention` : 'Nothing needs attention', false);
  }
}

function find(event) {
  event.preventDefault();
  navigate(`/queues?search=${encodeURIComponent(event.currentTarget.elements.find.value)}`);
}
function pause() { page.paused = !page.paused; draw(); if (!page.paused) refresh(); else schedule(); }
async function leave() { await signOut(); Object.assign(page, { data: null, state: null, ended: '' }); draw(); }

function turnTheme() {
  const root = document.documentElement.dataset;
  root.theme = root.theme === 'dark' ? 'light' : 'dark';
  localStorage.setItem('mq9-theme', root.theme);
}
function setTheme() {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const follow = () => { document.documentElement.dataset.theme = localStorage.getItem('mq9-theme') || (dark.matches ? 'dark' : 'light'); };
  dark.addEventListener('change', follow);
  follow();
}

// No key changes anything.
const GOES = { o: '/', q: '/queues', c: '/consumers', d: '/dead-letters', a: '/agents' };
let pressed = '';
addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  if (event.target.closest?.('input, textarea, select')) { if (event.key === 'Escape') event.target.blur(); return; }
  const before = pressed;
  pressed = event.key;
  if (before === 'g' && GOES[event.key]) { navigate(GOES[event.key]); return; }
  const rows = [...document.querySelectorAll('main tr.open a, main tr.open button.row, main .pick button')];
  const at = rows.indexOf(document.activeElement);
  if (event.key === '/') { event.preventDefault(); document.getElementById('find')?.focus(); }
  else if (event.key === 'j') rows[Math.min(at + 1, rows.length - 1)]?.focus();
  else if (event.key === 'k') rows[Math.max(at - 1, 0)]?.focus();
  else if (event.key === 'p') pause();
  else if (event.key === '?') help();
  else if (event.key === 'Escape' && location.pathname === '/queue') navigate('/queues');
});
addEventListener('click', (event) => {
  const link = event.target.closest?.('a[href^="/"]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button || link.hasAttribute('download')) return;
  event.preventDefault();
  navigate(link.getAttribute('href'));
});
addEventListener('popstate', arrive);
document.addEventListener('visibilitychange', () => { if (!document.hidden && !page.paused) refresh(); });

setTheme();
draw();
refresh();
