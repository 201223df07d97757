// Charts of the last half hour: lines from zero, a gap where nothing is known.

import { el, svg } from './dom.js';
import { clock, count, duration, levelColour, levelName, rate as perSecond } from './format.js';

const WIDTH = 380, HEIGHT = 156, LEFT = 40, RIGHT = 8, TOP = 8, BOTTOM = 20;

function ceiling(most) {
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => most <= step * power) * power;
}

function line(points, x, y, field) {
  let path = '', pen = 'M';
  for (const point of points) {
    const value = point[field];
    if (value == null) { pen = 'M'; continue; }
    // One alone between two gaps is a dot.
    path += `${pen}${x(point.time).toFixed(1)} ${y(value).toFixed(1)}${pen === 'M' ? 'h.01' : ''}`;
    pen = 'L';
  }
  return path;
}

// `fields` are [field, word, class] for each line.
export function lines(points, fields, title, show = perSecond, unit = 'per second') {
  const values = points.flatMap((point) => fields.map(([field]) => point[field])).filter((value) => value != null);
  const last = [...points].reverse().find((point) => fields.some(([field]) => point[field] != null)) || {};
  if (values.length < 2) return el('div', { class: 'void note' }, points.length < 3 ? 'The first points come in a few seconds.' : 'Nothing happened in this time.');
  const [from, to] = [points[0].time, points[points.length - 1].time];
  const most = ceiling(Math.max(...values) * 1.04);
  const x = (time) => LEFT + (WIDTH - LEFT - RIGHT) * (time - from) / Math.max(to - from, 1);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / most);
  const grid = [0, 0.5, 1].map((part) => [
    svg('line', { class: 'grid', x1: LEFT, x2: WIDTH - RIGHT, y1: y(most * part), y2: y(most * part) }),
    svg('text', { x: LEFT - 8, y: y(most * part) + 4, 'text-anchor': 'end' }, show(most * part)),
  ]);
  const times = [0.15, 0.5, 0.85].map((part) => {
    const time = from + (to - from) * part;
    return svg('text', { x: x(time), y: HEIGHT - 3, 'text-anchor': 'middle' }, clock(time).slice(0, to - from < 600 ? 8 : 5));
  });
  const drawn = fields.map(([field, , kind]) => svg('path', { class: kind, d: line(points, x, y, field) }));
  const words = fields.map(([field, word]) => `${word} ${show(last[field])} ${unit}`).join(', ');
  const label = `${title} over ${duration(to - from)}. Now: ${words}. Highest: ${show(Math.max(...values))}.`;
  return [
    el('div', { class: 'chart' }, svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': label }, grid, times, drawn)),
    el('div', { class: 'legend' }, fields.map(([field, word, kind]) =>
      el('span', null, kind === 'strong' ? '— ' : '┄ ', `${word} `, el('b', null, show(last[field]))))),
  ];
}

// One small chart for each level in use, each on its own scale.
export function levels(points, now) {
  const known = points.filter((point) => point.levels);
  const used = [...Array(10).keys()].filter((at) => now[at + 1] || known.some((point) => point.levels[at]));
  if (!used.length) return el('div', { class: 'void note' }, 'Nothing waits.');
  return el('div', { class: 'sparks' }, used.map((at) => {
    const values = known.map((point) => point.levels[at]);
    const most = Math.max(...values, 1);
    const x = (i) => 160 * i / Math.max(values.length - 1, 1), y = (value) => 25 - 23 * value / most;
    const path = values.map((value, i) => `${i ? 'L' : 'M'}${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join('');
    const change = values.length ? values[values.length - 1] - values[0] : 0;
    const label = `${levelName(at + 1)}: from ${count(values[0])} to ${count(values[values.length - 1])}`;
    return [
      el('span', { class: 'left' }, levelName(at + 1)),
      el('span', null, svg('svg', { viewBox: '0 0 160 26', preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
        svg('path', { d: `${path}L160 26L0 26Z`, fill: levelColour(at + 1), opacity: '.22' }),
        svg('path', { d: path, fill: 'none', stroke: levelColour(at + 1), 'stroke-width': '1.75', 'vector-effect': 'non-scaling-stroke' }))),
      el('b', null, count(now[at + 1] || 0)),
      el('span', { class: 'third note', title: 'change in this time' }, change > 0 ? `+${count(change)}` : change < 0 ? `−${count(-change)}` : '±0'),
    ];
  }));
}
