import { ServerConnection } from '@jupyterlab/services';
import { createServer, type IncomingMessage, type Server } from 'http';
import type { AddressInfo } from 'net';
import { GpuPoolApi, type GpuPoolError } from '../../api/client';
import { anAttachedKernel } from '../samples';

let server: Server;
let api: GpuPoolApi;
let asked: { method: string; path: string; query: string; body: string };
let answer: { status: number; text: string };

async function bodyOf(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of request) {
    parts.push(part as Buffer);
  }
  return Buffer.concat(parts).toString();
}

beforeAll(async () => {
  server = createServer((request, response) => {
    void bodyOf(request).then(body => {
      const { pathname: path, search: query } = new URL(
        request.url ?? '',
        'http://x'
      );
      asked = { method: request.method ?? '', path, query, body };
      response.writeHead(answer.status).end(answer.text);
    });
  });
  await new Promise<void>(done => server.listen(0, '127.0.0.1', done));
  const { port } = server.address() as AddressInfo;
  api = new GpuPoolApi(
    ServerConnection.makeSettings({
      // As behind a JupyterHub: not at the root of the host.
      baseUrl: `http://127.0.0.1:${port}/user/ann/`,
      token: ''
    })
  );
});

afterAll(() => {
  server.closeAllConnections();
  server.close();
});

it('asks below the base URL of the server', async () => {
  answer = { status: 202, text: JSON.stringify(anAttachedKernel()) };
  const kernel = await api.attach('k/1', { share: '0.2' });
  expect(asked.method).toBe('POST');
  expect(asked.path).toBe('/user/ann/gpupool/api/kernels/k%2F1/attach');
  expect(JSON.parse(asked.body)).toEqual({ share: '0.2' });
  expect(kernel?.state).toBe('attached');
});

it('sends null for the default, and nothing where the server decides', async () => {
  answer = { status: 200, text: JSON.stringify(anAttachedKernel()) };
  await api.setIdle('k1', null);
  expect(asked.path).toBe('/user/ann/gpupool/api/kernels/k1/idle');
  expect(JSON.parse(asked.body)).toEqual({ minutes: null });
  await api.keep('k1');
  expect(JSON.parse(asked.body)).toEqual({});
  await api.undo('k1');
  expect(asked.path).toBe('/user/ann/gpupool/api/kernels/k1/undo');
  expect(asked.method).toBe('POST');
});

it('accepts an empty answer', async () => {
  answer = { status: 200, text: '' };
  expect(await api.cancelQueue('k1')).toBeNull();
  expect(asked.method).toBe('DELETE');
});

it('asks for the words so that a browser may keep them', async () => {
  answer = { status: 200, text: '{"full": "no room"}' };
  expect(await api.catalogue()).toEqual({ full: 'no room' });
  // Other questions have the time behind them, so that no copy of an answer is used.
  expect(asked.path).toBe('/user/ann/gpupool/api/catalogue');
  expect(asked.query).toBe('');
  await api.defaults();
  expect(asked.query).not.toBe('');
});

it('passes the sentence and the reason of a refusal on', async () => {
  answer = {
    status: 409,
    text: '{"message": "0.9 is not free", "reason": "full"}'
  };
  await expect(api.attach('k1', { share: '0.9' })).rejects.toMatchObject({
    message: '0.9 is not free',
    reason: 'full',
    status: 409
  });
});

it('tells an unknown route from an unknown kernel', async () => {
  answer = { status: 404, text: '<html>' };
  await expect(api.pool()).rejects.toMatchObject({ reason: 'missing' });
  answer = { status: 404, text: '{"message": "", "reason": null}' };
  await expect(api.pool()).rejects.toMatchObject({ reason: 'missing' });
  answer = { status: 404, text: '{"reason": "unknown-kernel"}' };
  await expect(api.detach('k1', false)).rejects.toMatchObject({
    reason: 'unknown-kernel'
  });
});

it.each(['<html>Log in</html>', ''])(
  'takes what is no answer for none (%p)',
  async text => {
    answer = { status: 200, text };
    const questions = [
      () => api.pool(),
      () => api.kernels(),
      () => api.defaults()
    ];
    for (const ask of questions) {
      await expect(ask()).rejects.toMatchObject({
        message: expect.stringMatching(
          /^What came from gpupool\/api\/\w+ is no answer of the Jupyter server\.$/
        ),
        reason: 'unknown',
        status: 200
      });
    }
  }
);

it('does not fall over an answer that is no JSON', async () => {
  answer = { status: 502, text: '<h1>' };
  await expect(api.pool()).rejects.toMatchObject({
    message: '502 Bad Gateway',
    status: 502
  });
});

it('says so when nobody answers', async () => {
  const nobody = new GpuPoolApi(
    ServerConnection.makeSettings({ baseUrl: 'http://127.0.0.1:9/', token: '' })
  );
  await expect(nobody.pool()).rejects.toMatchObject({
    reason: 'unreachable',
    status: 0
  });
});

it('says so when nobody answers', async () => {
  const silent = createServer(() => undefined);
  await new Promise<void>(done => silent.listen(0, '127.0.0.1', done));
  const { port } = silent.address() as AddressInfo;
  jest.useFakeTimers({ doNotFake: ['nextTick', 'queueMicrotask'] });
  try {
    const asking = new GpuPoolApi(
      ServerConnection.makeSettings({ baseUrl: `http://127.0.0.1:${port}/` })
    ).pool();
    const outcome = asking.catch((error: GpuPoolError) => error);
    await jest.advanceTimersByTimeAsync(15_000);
    expect(await outcome).toMatchObject({
      reason: 'unreachable',
      status: 0,
      message: 'The Jupyter server did not answer within 15 s.'
    });
  } finally {
    jest.useRealTimers();
    silent.closeAllConnections();
    silent.close();
  }
});
