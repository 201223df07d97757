// A payload as JSON, text or bytes. Bytes are not an error; copying gives the original.

import { el, icon } from './dom.js';
import { shown, size } from './format.js';

export const FIRST = 64 * 1024;
// More than this is for a program to look at: it can be had as a file.
const MOST = 1024 * 1024;
const chosen = { as: null };

export function bytesOf(message) {
  if (message.encoding === 'base64') return Uint8Array.from(atob(message.payload), (c) => c.charCodeAt(0));
  return new TextEncoder().encode(message.payload || '');
}

function parsed(message, bytes) {
  if (message.encoding === 'base64') {
    try { return { text: new TextDecoder('utf-8', { fatal: true }).decode(bytes) }; } catch { return {}; }
  }
  const text = message.payload || '';
  if (/^\s*[[{]/.test(text)) {
    try { return { text, json: JSON.stringify(JSON.parse(text), null, 2) }; } catch { /* not JSON, then */ }
  }
  return { text };
}

function hex(bytes) {
  const rows = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const part = [...bytes.slice(at, at + 16)];
    const digits = part.map((byte) => byte.toString(16).padStart(2, '0')).join(' ').padEnd(47);
    const letters = part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : '·')).join('');
    rows.push(`${at.toString(16).padStart(6, '0')}  ${digits}  ${letters}`);
  }
  return rows.join('\n');
}

// Lines stay lines; every other control character is drawn.
const lined = (text) => text.split('\n').map((part) => shown(part.replace(/\t/g, '    '))).join('\n');

export function preview(message) {
  const text = message.encoding === 'base64' ? hex(bytesOf(message).slice(0, 16)) : (message.payload || '').slice(0, 300);
  return text ? shown(text) : el('span', { class: 'zero' }, 'empty');
}

// `load` gives the message with all of its payload, of which this one may have only the beginning.
export function payload(message, redraw, whole, load) {
  const bytes = bytesOf(message);
  const total = message.bytes ?? bytes.length;
  const complete = async () => (message.cut ? load() : message);
  const { text, json } = parsed(message, bytes);
  const ways = [json !== undefined && 'JSON', text !== undefined && 'Text', 'Hex'].filter(Boolean);
  const as = ways.includes(chosen.as) ? chosen.as : ways[0];
  const all = as === 'JSON' ? json : as === 'Text' ? text : null;
  const long = message.cut || (as === 'Hex' ? bytes.length > FIRST / 4 : all.length > FIRST);
  const part = as === 'Hex' ? hex(whole ? bytes : bytes.slice(0, FIRST / 4)) : lined(whole ? all : all.slice(0, FIRST));
  return el('div', { class: 'payload' },
    el('div', { class: 'tools' },
      el('span', { class: 'note third' }, size(total)), el('span', { class: 'grow' }),
      el('span', { class: 'choice small', role: 'group', 'aria-label': 'Show the payload as' }, ways.map((way) =>
        el('button', { type: 'button', 'aria-pressed': String(way === as), onclick: () => { chosen.as = way; redraw(); } }, way))),
      el('button', { type: 'button', class: 'button small quiet', onclick: async () => copyPayload(await complete()) }, icon('copy'), 'Copy'),
      el('button', { type: 'button', class: 'button small quiet', onclick: async () => download(await complete()) }, 'Download')),
    bytes.length ? el('pre', { tabindex: '0', 'aria-label': 'Payload' }, el('bdi', null, part)) : el('p', { class: 'void note' }, 'The payload is empty.'),
    long && !whole ? el('div', { class: 'foot' }, `The first ${as === 'Hex' ? '16' : '64'} KiB of ${size(total)}.`,
      total > MOST ? ' Download it to see the rest.' : el('button', { type: 'button', class: 'button small', onclick: () => redraw(true) }, 'Show all')) : null);
}

export async function copy(text) {
  try { await navigator.clipboard.writeText(text); say('Copied'); } catch { say('The browser does not allow copying here'); }
}

function copyPayload(message) {
  const bytes = bytesOf(message), { text } = parsed(message, bytes);
  return copy(text === undefined ? hex(bytes) : text);
}

function download(message) {
  const link = el('a', { href: URL.createObjectURL(new Blob([bytesOf(message)])), download: `message-${message.msg_id ?? 'dead'}.bin` });
  link.click();
  URL.revokeObjectURL(link.href);
}

let telling = 0;

// Read out to who cannot see it; everybody else sees it for a while, unless the view shows it anyway.
export function say(text, isSeen = true) {
  const news = document.getElementById('news');
  news.className = isSeen ? 'told' : 'unseen';
  news.textContent = text;
  clearTimeout(telling);
  telling = setTimeout(() => { news.textContent = ''; }, 5000);
}
