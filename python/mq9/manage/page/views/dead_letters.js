// What failed, and can it go back? By reason, then one letter.

import { ask, get, path } from '../api.js';
import { dialog, purgeLetters, replay } from '../dialogs.js';
import { el, icon } from '../dom.js';
import { ago, count, exact, level, levelNumber, name, plural, shown, size } from '../format.js';
import { LIMIT, choice, empty, head, offsetOf, pages, pairs, panel, table } from '../parts.js';
import { FIRST, payload, say } from '../payload.js';

const REASONS = { terminated: 'Given up by a worker', max_deliver: 'Delivered too often without an acknowledgement' };
const reasonText = (reason) => REASONS[reason] || shown(reason || 'no reason given');
const NONE = { id: '', page: '', reason: '', queue: '' };

async function act(context, work, text) {
  // The second click of two is not a second wish.
  if (context.held.acting) return;
  Object.assign(context.held, { acting: true, wrong: '' });
  try { await work(); say(text); } catch (error) { context.held.wrong = error.message; } finally { context.held.acting = false; }
  context.refresh();
}

function reasons(data, context) {
  const { reason = '', queue = '' } = context.query;
  const most = Math.max(...data.reasons.map((each) => each.count), 1);
  return panel([el('h2', null, 'By reason'), el('span', { class: 'note third' }, plural(data.reasons.length, 'reason'))],
    el('ul', { class: 'pick' }, data.reasons.map((each) => {
      const current = each.reason === reason && each.queue === queue;
      return el('li', null, el('button', { type: 'button', 'aria-current': String(current), onclick: () => context.set(current ? NONE : { ...NONE, reason: each.reason, queue: each.queue }) },
        el('b', null, reasonText(each.reason)), el('b', null, count(each.count)), name(each.queue), el('span', { class: 'note second' }, ago(each.newest, context.now)),
        el('span', { class: 'share' }, el('span', { vars: { width: `${100 * each.count / most}%` } }))));
    })));
}

function progress(context) {
  const { job } = context.held;
  if (!job) return null;
  const failed = `${job.failed ? `, ${count(job.failed)} failed` : ''}${job.error ? `: ${shown(job.error)}` : ''}`;
  const [done, doing] = job.action === 'purge' ? ['Purged', 'Purging:'] : ['Replayed', 'Replaying:'];
  const sent = job.replayed + job.purged;
  const word = !job.done ? doing : sent + job.failed < job.total ? `Stopped: ${done.toLowerCase()}` : done;
  return el('div', { class: 'foot', role: 'status' }, `${word} ${count(sent)} of ${count(job.total)}${failed}`, el('span', { class: 'grow' }),
    job.done ? null : el('button', { type: 'button', class: 'button small', onclick: () => act(context, () => ask('DELETE', path('dead-letters', 'jobs', job.job)), 'Stopped') }, 'Stop'));
}

function letters(data, context) {
  const { reason = '', queue = '' } = context.query;
  const resolved = context.query.resolved === 'true';
  const busy = context.held.job && !context.held.job.done;
  const rows = data.letters.map((letter) => el('tr', { class: 'open', 'aria-selected': String(letter.id === data.letter?.id), onclick: () => { context.held.wrong = ''; context.set({ id: letter.id }, true); } },
    el('td', { class: 'wide' }, el('a', { class: 'name', href: `/dead-letters?${new URLSearchParams({ ...context.query, id: letter.id })}` }, name(letter.subject))),
    el('td', { class: 'number code', 'data-label': 'Message' }, letter.original_id),
    el('td', null, letter.priority ? level(levelNumber(letter.priority), letter.priority) : '–'),
    el('td', { class: 'number', 'data-label': 'Tries' }, String(letter.attempts)),
    el('td', { class: 'number', 'data-label': 'Failed' }, ago(letter.last_failed, context.now)),
    el('td', { class: 'number', 'data-label': resolved ? 'How' : 'Size' }, resolved ? shown(letter.how || '') : size(letter.bytes))));
  // Stop is there at once, however long the rest takes.
  const started = (found) => { if (found) { context.held.job = found; context.redraw(); } else context.refresh(); };
  return panel([el('div', { class: 'grow' }, el('h2', null, reason ? reasonText(reason) : resolved ? 'Resolved' : 'All of them'),
    el('p', { class: 'note second' }, plural(data.total, 'letter'), queue ? [' from ', el('code', null, shown(queue))] : null)),
  context.steers && !resolved && data.total ? el('button', { type: 'button', class: 'button small main', disabled: !context.canChange || busy, onclick: () => replay({ queue, reason }, data.total, started) }, icon('replay'), `Replay ${count(data.total)}…`) : null,
  context.steers && !resolved && data.total ? el('button', { type: 'button', class: 'button small', disabled: !context.canChange || busy, onclick: () => purgeLetters({ queue, reason }, data.total, started) }, `Purge ${count(data.total)}…`) : null],
  progress(context), resolved || !data.unlisted ? null : el('p', { class: 'foot' }, `${count(data.unlisted)} more, older than these, are not listed yet. Replay and purge leave them out; they come here when there is room.`),
  rows.length ? table('Dead letters', [['From'], ['Message', 'number'], ['Priority'], ['Tries', 'number'], ['Failed', 'number'], [resolved ? 'How' : 'Size', 'number']], rows) : empty('None here'),
  pages(data.total, rows.length, context));
}

function one(letter, context) {
  const headers = Object.entries(letter.headers || {}).filter(([key]) => !key.startsWith('mq9-dead-')).map(([key, values]) => [shown(key), el('bdi', null, shown(values.join(', ')))]);
  const where = path('dead-letters', letter.id);
  const { held } = context, load = () => get(where);
  const redraw = async (all) => {
    held.all = all ? letter.id : null;
    if (all && letter.cut) held.whole = await load();
    context.redraw();
  };
  const resolve = () => dialog({
    title: 'Mark it as resolved?', body: el('p', { class: 'second' }, 'It leaves this list and is not sent again. Resolved letters are kept for seven days.'),
    keep: 'Leave it', button: 'Mark 1 as resolved', done: context.refresh, act: async () => { await ask('PATCH', where, { resolved: true }); return 'Resolved'; },
  });
  return panel([el('h2', null, `Message ${shown(letter.original_id)}`), el('span', { class: 'note second' }, el('bdi', null, shown(letter.id))), el('span', { class: 'grow' }),
    context.steers && !letter.resolved ? [
      el('button', { type: 'button', class: 'button small', disabled: !context.canChange, onclick: resolve }, 'Mark resolved…'),
      el('button', { type: 'button', class: 'button small', disabled: !context.canChange, onclick: () => act(context, () => ask('POST', `${where}/replay`), 'Replayed') }, icon('replay'), 'Replay')] : null],
  pairs([['why', reasonText(letter.error)], ['said', letter.detail ? el('bdi', null, shown(letter.detail)) : null], ['group', el('bdi', null, shown(letter.group))], ['goes back to', el('code', null, shown(letter.subject))], ['tries', String(letter.attempts)],
    ['failed', exact(letter.last_failed)], ['resolved', letter.resolved ? `${shown(letter.how || '')} by ${shown(letter.by || 'this machine')}` : null], ...headers]),
  letter.payload == null ? null : payload(held.whole?.id === letter.id ? held.whole : letter, redraw, held.all === letter.id, load));
}

export const deadLetters = {
  async load(context, signal) {
    const { reason = '', queue = '', resolved, id } = context.query;
    const found = await get('/v1/dead-letters', { reason, queue, resolved, limit: LIMIT, offset: offsetOf(context) }, signal);
    const all = await get('/v1/dead-letters/reasons', {}, signal);
    const listed = found.dead_letters;
    let letter = listed.find((each) => each.id === id) || listed[0] || null;
    // It may have been resolved meanwhile: then there is none to show.
    if (letter && resolved !== 'true') letter = await get(path('dead-letters', letter.id), { preview: FIRST }, signal).catch(() => null);
    const { job } = context.held;
    // A look that is cut short by the next one must not forget the job, and its button to stop it.
    if (job && !job.done) context.held.job = await get(path('dead-letters', 'jobs', job.job), {}, signal).catch((error) => (error.status === 404 ? null : job));
    return { letters: listed, total: found.total, reasons: all.reasons, open: all.total, unlisted: all.unlisted, letter };
  },
  draw(data, context) {
    const resolved = context.query.resolved === 'true';
    const title = head(data.open ? `${count(data.open)} dead ${data.open === 1 ? 'letter' : 'letters'}` : 'Dead letters',
      choice('Which', [[false, `Open ${count(data.open)}`], [true, 'Resolved']], resolved, (value) => context.set({ ...NONE, resolved: value ? 'true' : '' })));
    const wrong = context.held.wrong ? el('p', { class: 'wrong', role: 'alert' }, shown(context.held.wrong)) : null;
    if (!data.open && !resolved) {
      return [title, wrong, context.held.job ? panel(null, progress(context)) : null, panel(null, empty('No dead letters', el('p', null, 'A message comes here when it was delivered too often without an acknowledgement, or a worker gave it up.'),
        el('pre', { tabindex: '0' }, 'mq9 mailbox create jobs --max-deliver 3 --dead-letter jobs.dead')))];
    }
    return [title, wrong, el('div', { class: resolved ? 'columns' : 'columns reasons-letters' }, resolved ? null : reasons(data, context),
      el('div', { class: 'columns' }, letters(data, context), data.letter ? one(data.letter, context) : null))];
  },
};
