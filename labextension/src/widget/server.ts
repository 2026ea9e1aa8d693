/** The way from a page to the Jupyter server that it came from. */

import { inTime, secondsOf } from '../api/timeLimit';

/** Where a Jupyter server is, as its page says it. */
export interface IServer {
  baseUrl: string;
  token?: string;
}

/** Where the server is; null in a page that no Jupyter server made. */
export function serverOf(page: Document): IServer | null {
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
  constructor(
    message: string,
    readonly reason: string,
    readonly status: number
  ) {
    super(message);
  }
}

/** Throws `Refused`, or another error where nobody answers. */
export async function request<T>(
  server: IServer,
  method: string,
  path: string,
  body?: object,
  asking?: AbortController
): Promise<T> {
  const root = server.baseUrl.endsWith('/')
    ? server.baseUrl
    : `${server.baseUrl}/`;
  const headers: Record<string, string> = {
    'Content-Type': 'application/json'
  };
  if (server.token) {
    headers.Authorization = `token ${server.token}`;
  }
  const xsrf = cookie('_xsrf');
  if (method !== 'GET' && xsrf) {
    headers['X-XSRFToken'] = xsrf;
  }
  const [response, answer] = await inTime(
    secondsOf(method),
    async signal => {
      const found = await fetch(`${root}gpupool/api/${path}`, {
        method,
        headers,
        credentials: 'same-origin',
        body: body === undefined ? undefined : JSON.stringify(body),
        signal
      });
      return [found, parsed(await found.text())] as const;
    },
    asking
  );
  if (!response.ok) {
    throw new Refused(
      answer?.message ?? `The server answered ${response.status}.`,
      answer?.reason ?? '',
      response.status
    );
  }
  if (!answer) {
    throw new Error(
      'What came is no answer of the Jupyter server: reload the page to log in.'
    );
  }
  return answer;
}

/** Null: it is no JSON, as the login page of a proxy. A verb may answer nothing. */
function parsed(text: string) {
  try {
    return JSON.parse(text || '{}');
  } catch {
    return null;
  }
}

function cookie(name: string): string | null {
  const found = document.cookie
    .split('; ')
    .find(part => part.startsWith(`${name}=`));
  return found ? decodeURIComponent(found.slice(name.length + 1)) : null;
}
