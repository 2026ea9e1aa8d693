/** The way from a page to the Jupyter server that it came from. */

/** Where the server is; null in a page that no Jupyter server made. */
export function serverOf(page) {
  const config = page.getElementById('jupyter-config-data');
  if (!config) {
    return null;
  }
  try {
    const { baseUrl, token } = JSON.parse(config.textContent ?? '');
    return typeof baseUrl === 'string' ? { baseUrl, token } : null;
  } catch {
    return null;
  }
}

/** What the server answered in place of what was asked: one sentence, and the id of the reason. */
export class Refused extends Error {
  constructor(message, reason, status) {
    super(message);
    this.reason = reason;
    this.status = status;
  }
}

/** Throws `Refused`, or `TypeError` where nobody answers. */
export async function request(server, method, path, body, signal) {
  const root = server.baseUrl.endsWith('/') ? server.baseUrl : `${server.baseUrl}/`;
  const headers = { 'Content-Type': 'application/json' };
  if (server.token) {
    headers.Authorization = `token ${server.token}`;
  }
  const xsrf = cookie('_xsrf');
  if (method !== 'GET' && xsrf) {
    headers['X-XSRFToken'] = xsrf;
  }
  const response = await fetch(`${root}gpupool/api/${path}`, {
    method,
    headers,
    credentials: 'same-origin',
    body: body === undefined ? undefined : JSON.stringify(body),
    signal
  });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    throw new Refused(
      answer.message ?? `The server answered ${response.status}.`,
      answer.reason ?? '',
      response.status
    );
  }
  return answer;
}

function cookie(name) {
  const found = document.cookie.split('; ').find(part => part.startsWith(`${name}=`));
  return found ? decodeURIComponent(found.slice(name.length + 1)) : null;
}
