// Makes elements and keeps them: text only ever becomes text, and what is focused stays so.

const SVG = 'http://www.w3.org/2000/svg';

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value == null || value === false) continue;
    if (name.startsWith('on')) element[name] = value;
    else if (name === 'vars') for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const HANDLERS = ['onclick', 'oninput', 'onchange', 'onsubmit', 'onkeydown'];

// Makes `old` look like `fresh` with as few changes as possible: focus, selection and scrolling stay.
export function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || old.id !== fresh.id) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  // What somebody typed stays, unless another value is meant now.
  const meant = old.tagName === 'INPUT' && old !== document.activeElement && old.getAttribute('value') !== fresh.getAttribute('value');
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) === value) continue;
    // The policy of the page forbids styles as attributes, not as properties.
    if (name === 'style') old.style.cssText = fresh.style.cssText;
    else old.setAttribute(name, value);
  }
  for (const name of HANDLERS) if (old[name] !== fresh[name]) old[name] = fresh[name];
  if (meant) old.value = fresh.value;
  morphChildren(old, [...fresh.childNodes]);
}

export function morphChildren(parent, fresh) {
  const old = [...parent.childNodes];
  fresh.forEach((node, at) => (at < old.length ? morph(old[at], node) : parent.append(node)));
  old.slice(fresh.length).forEach((node) => node.remove());
}

const PATHS = {
  overview: 'M2.500 2.500h4.500v6h-4.500zM9 2.500h4.500v3h-4.500zM9 7.500h4.500v6h-4.500zM2.500 10.500h4.500v3h-4.500z',
  queues: 'M2.500 4h11M2.500 8h8M2.500 12h5',
  consumers: 'M5.500 7.500a2.200 2.200 0 1 0 0-4.400 2.200 2.200 0 0 0 0 4.400zM2 13c0-2 1.500-3.500 3.500-3.500s3.500 1.500 3.500 3.500M10.500 3.300a2.100 2.100 0 0 1 0 4.200M11.500 9.600c1.500.300 2.600 1.600 2.600 3.400',
  letter: 'M2 4h12v8.500h-12zM2 4.500l6 4.500 6-4.500',
  agents: 'M3.500 6h9v6.500h-9zM8 6v-3M6 9v.600M10 9v.600M1.800 8.500v2M14.200 8.500v2',
  connections: 'M6 2.500v3M10 2.500v3M4 5.500h8v2.500a4 4 0 0 1-8 0zM8 12v2.500',
  clock: 'M8 14a6 6 0 1 0 0-12 6 6 0 0 0 0 12zM8 4.500v3.500l2.500 1.500',
  search: 'M7 11.500a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9zM10.300 10.300l3.200 3.200',
  broken: 'M5.300 2h5.400l3.300 3.300v5.400l-3.300 3.300h-5.400l-3.300-3.300v-5.400zM8 5v3.500M8 10.900v.050',
  attention: 'M8 2.300l6.300 11h-12.600zM8 6.300v3.200M8 11.300v.050',
  ok: 'M8 14a6 6 0 1 0 0-12 6 6 0 0 0 0 12zM5.400 8.200l1.800 1.800 3.400-3.800',
  copy: 'M5.500 5.500h8v8h-8zM3 10.500v-8h8',
  theme: 'M8 14a6 6 0 1 0 0-12 6 6 0 0 0 0 12zM8 2v12M8 5h4.500M8 8h6M8 11h4.500',
  pause: 'M5.500 3.500v9M10.500 3.500v9',
  play: 'M5 3l8 5-8 5z',
  send: 'M2.500 8l11-5-3 10.500-3-4.300zM7.500 9.200l6-6.200',
  replay: 'M3 8a5 5 0 1 1 1.600 3.700M3 12.500v-3h3',
};
export const icon = (name, kind = '') =>
  svg('svg', { class: `icon ${kind}`, viewBox: '0 0 16 16', 'aria-hidden': 'true' }, svg('path', { d: PATHS[name] }));
