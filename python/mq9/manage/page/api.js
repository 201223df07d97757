// Requests to the server of this page. Tells a refusal from a server that is not there.

export const session = { user: '', role: null, csrf: '', anonymous: true };

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || `refused (${status})`);
    this.status = status;
    this.problem = problem;
  }
}
export class ServerGone extends Error {}

export async function ask(method, path, body, signal) {
  const headers = {};
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  if (method !== 'GET' && session.csrf) headers['X-CSRF-Token'] = session.csrf;
  let response;
  try {
    response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal, redirect: 'error' });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ServerGone('the server of this page does not answer');
  }
  const text = await response.text();
  let found = {};
  try { found = text ? JSON.parse(text) : {}; } catch { /* told by its status */ }
  if (!response.ok) throw new Refused(response.status, found);
  return found;
}

export const get = (path, query = {}, signal = undefined) => {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== '' && value !== null);
  const text = new URLSearchParams(given).toString();
  return ask('GET', text ? `${path}?${text}` : path, undefined, signal);
};

export async function readSession() { Object.assign(session, await get('/v1/session')); }
export async function signIn(user, password) { Object.assign(session, await ask('POST', '/v1/session', { user, password })); }
export async function signOut() { await ask('DELETE', '/v1/session'); await readSession(); }
export const maySteer = () => session.role === 'steer';
export const path = (...parts) => `/v1/${parts.map(encodeURIComponent).join('/')}`;
