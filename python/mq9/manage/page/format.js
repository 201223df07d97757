// Numbers, times and names as people read them.

import { el, icon } from './dom.js';

export const settings = {
  utc: localStorage.getItem('mq9-zone') !== 'local',
};

const NAMES = { 1: 'critical', 3: 'urgent', 5: 'normal', 9: 'notify' };
const NUMBERS = { critical: 1, urgent: 3, normal: 5, notify: 9 };
export const levelName = (level) => NAMES[level] || `level ${level}`;
export const levelNumber = (name) => NUMBERS[name] || Number(String(name).replace(/\D/g, '')) || 5;
export const levelColour = (level) => `var(--level-${level})`;

export function count(n) {
  if (n == null) return '–';
  return n < 1e6 ? Math.round(n).toLocaleString('en-US') : `${(n / 1e6).toFixed(n < 1e7 ? 1 : 0)} M`;
}
// Where there is little room; never more than there are.
export const brief = (n) => (n < 1e4 || n >= 1e6 ? count(n) : `${Math.floor(n / 1000)} k`);
export const whole = (n) => (n == null ? '–' : Math.round(n).toLocaleString('en-US'));
export const rate = (n) => (n == null ? '–' : n === 0 ? '0' : n < 10 ? n.toFixed(1) : count(n));
// Milliseconds, as short as they can be told apart.
export const millis = (ms) => (ms == null ? '–' : ms >= 1000 ? `${(ms / 1000).toFixed(1)} s` : ms >= 10 ? `${Math.round(ms)} ms` : ms ? `${ms.toFixed(ms < 1 ? 2 : 1)} ms` : '0');
export const plural = (n, word) => `${count(n)} ${word}${n === 1 ? '' : 's'}`;

export function size(bytes) {
  if (bytes == null) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (bytes >= 1024 && at < units.length - 1) { bytes /= 1024; at += 1; }
  return `${at && bytes < 10 ? bytes.toFixed(1) : Math.round(bytes)} ${units[at]}`;
}

export function duration(seconds) {
  if (seconds == null) return '–';
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  const [large, small, by] = seconds < 86400 ? ['h', 'min', 3600] : ['d', 'h', 86400];
  const rest = Math.floor((seconds % by) / (by === 3600 ? 60 : 3600));
  return `${Math.floor(seconds / by)} ${large}${rest ? ` ${rest} ${small}` : ''}`;
}

const pad = (n) => String(n).padStart(2, '0');
export function clock(seconds) {
  const t = new Date(seconds * 1000);
  const parts = settings.utc ? [t.getUTCHours(), t.getUTCMinutes(), t.getUTCSeconds()] : [t.getHours(), t.getMinutes(), t.getSeconds()];
  return parts.map(pad).join(':');
}
export function exact(seconds) {
  const t = new Date(seconds * 1000);
  if (settings.utc) return `${t.toISOString().slice(0, 10)} ${clock(seconds)} UTC`;
  return `${t.getFullYear()}-${pad(t.getMonth() + 1)}-${pad(t.getDate())} ${clock(seconds)}`;
}
export function ago(seconds, now) {
  if (!seconds) return el('span', { class: 'zero' }, '–');
  const date = new Date(seconds * 1000).toISOString();
  return el('time', { datetime: date, title: exact(seconds) }, `${duration(Math.max(now - seconds, 0))} ago`);
}

// Control and direction characters are drawn, not obeyed; by numbers, since few fonts have pictures of them.
// What joins two pictures to one emoji is none of them.
export const shown = (text) => String(text)
  .replace(/\n/g, '↵')
  .replace(/(?<=\p{Extended_Pictographic}[\ufe0f\u{1f3fb}-\u{1f3ff}]?)\u200d(?=\p{Extended_Pictographic})|([\p{Cc}\p{Cf}\p{Cs}\u2028\u2029\u2065])/gu,
    (joiner, c) => (c === undefined ? joiner : `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`));

const LETTERS = new Intl.Segmenter();

// A name whose end stays when it has to be cut.
export function name(text) {
  const drawn = shown(text);
  const letters = Array.from(LETTERS.segment(drawn), (each) => each.segment);
  const tail = letters.length > 16 ? Math.min(14, Math.floor(letters.length * 0.4)) : 0;
  return el('bdi', { class: 'cut', title: drawn },
    el('span', null, letters.slice(0, letters.length - tail).join('')),
    tail ? el('span', null, letters.slice(-tail).join('')) : null);
}

export const zero = (n, format = count) => (n ? el('span', { title: whole(n) }, format(n)) : el('span', { class: 'zero' }, '0'));
export const level = (number, text) => el('span', { class: 'level', vars: { '--level': levelColour(number) } }, text || levelName(number));

export function mix(levels) {
  const entries = Object.entries(levels);
  const total = entries.reduce((sum, [, n]) => sum + n, 0);
  if (!total) return null;
  const words = entries.map(([at, n]) => `${count(n)} ${levelName(at)}`).join(', ');
  return el('span', { class: 'mix', role: 'img', 'aria-label': words, title: words },
    entries.map(([at, n]) => el('span', { vars: { flex: `${Math.max(n, total * 0.015)} 0 0`, background: levelColour(at) } })));
}

const OUTLOOKS = { 'nobody reads': 'broken', growing: 'attention' };
export function outlook(queue) {
  const kind = OUTLOOKS[queue.outlook];
  const words = {
    growing: () => `growing ${rate(queue.outlook_s)}/s`,
    drains: () => `drains in ${duration(queue.outlook_s)}`,
    'not read': () => `not read for ${duration(queue.outlook_s)}`,
  }[queue.outlook];
  const tone = kind ? `is-${kind}` : queue.outlook === 'idle' ? 'third' : 'second';
  return el('span', { class: `outlook ${tone}` }, kind ? icon(kind, `is-${kind}`) : null, words ? words() : queue.outlook);
}
