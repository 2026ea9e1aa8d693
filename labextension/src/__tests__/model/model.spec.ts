import { waitFor } from '@testing-library/dom';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { GpuPoolError } from '../../api/client';
import type { GpuPool } from '../../api/types';
import { GpuPoolModel } from '../../model/model';
import { SESSION_EVENT } from '../../model/tokens';
import { aKernel, aPool, aWarnedKernel, someDefaults } from '../samples';
import { Server, Services } from '../server';

let server: Server;
let jupyter: Services;
let model: GpuPoolModel;

/** The next change of the model. */
function change(): Promise<void> {
  return new Promise(resolve => {
    const slot = () => {
      model.changed.disconnect(slot);
      resolve();
    };
    model.changed.connect(slot);
  });
}

/** A question that is answered when the test says so; the next ones are answered at once. */
async function onItsWay(): Promise<(kernels: GpuPool.IKernel[]) => void> {
  let reply: (kernels: GpuPool.IKernel[]) => void = () => undefined;
  const slow = new Promise<GpuPool.IKernel[]>(resolve => (reply = resolve));
  const quick = server.kernels.bind(server);
  server.kernels = () => slow;
  void model.refresh();
  await new Promise(resolve => setTimeout(resolve, 20));
  server.kernels = quick;
  return reply;
}

beforeEach(async () => {
  server = new Server();
  jupyter = new Services();
  model = new GpuPoolModel({
    serviceManager: jupyter.services,
    api: server,
    standby: 'never'
  });
  await change();
});

afterEach(() => model.dispose());

it('knows what the server told', () => {
  expect(model.state.ready).toBe(true);
  expect(model.state.problem).toBeNull();
  expect(model.kernel('k1')?.label).toBe('train.ipynb');
  expect(model.kernel('nobody')).toBeUndefined();
});

it('asks again when a session event arrives', async () => {
  server.list = [aKernel({ state: 'queued' })];
  jupyter.event.emit({ schema_id: SESSION_EVENT, state: 'attached' });
  await change();
  // What the event says is a hint and not believed.
  expect(model.kernel('k1')?.state).toBe('queued');
});

it('does not ask for events of others', async () => {
  const before = server.calls.length;
  jupyter.event.emit({ schema_id: 'https://example.com/other/v1' });
  await new Promise(resolve => setTimeout(resolve, 50));
  expect(server.calls).toHaveLength(before);
});

it('asks again when a kernel starts, not when one is merely active', async () => {
  const kernels = [{ id: 'a', name: 'python3' }];
  jupyter.running.emit(kernels);
  await change();
  const before = server.calls.length;
  jupyter.running.emit([...kernels]);
  await new Promise(resolve => setTimeout(resolve, 50));
  expect(server.calls).toHaveLength(before);
});

it('shows the answer of a request at once, without waiting for a poll', async () => {
  const states: string[] = [];
  model.transitioned.connect((_, { from, kernel }) =>
    states.push(`${from} → ${kernel.state}`)
  );
  await model.attach('k1', { share: '0.2' });
  expect(server.calls).toContain('attach k1 0.2');
  expect(model.kernel('k1')?.state).toBe('attached');
  expect(states).toEqual(['none → attached']);
});

it('undoes a release and sets how long a kernel may be idle', async () => {
  await model.undo('k1');
  expect(model.kernel('k1')?.state).toBe('attached');
  await model.setIdle('k1', 30);
  await model.setIdle('k1', null);
  await model.keep('k1');
  expect(server.calls.filter(call => call !== 'pool')).toEqual([
    'undo k1',
    'idle k1 30',
    'idle k1 null',
    'keep k1 undefined'
  ]);
});

it('keeps the reason of a refusal until the next try', async () => {
  server.refusal = new GpuPoolError('0.9 is not free', 'full', 409);
  await expect(model.attach('k1', { share: '0.9' })).rejects.toThrow(
    '0.9 is not free'
  );
  expect(model.state.failures.get('k1')).toBe('0.9 is not free');
  expect(model.state.pending.size).toBe(0);
  server.refusal = null;
  await model.attach('k1', { share: '0.2' });
  expect(model.state.failures.size).toBe(0);
});

it('does not let an answer from before a request undo it', async () => {
  const reply = await onItsWay();
  await model.attach('k1', { share: '0.2' });
  reply([aKernel()]);
  await new Promise(resolve => setTimeout(resolve, 50));
  expect(model.kernel('k1')?.state).toBe('attached');
});

it('asks once more for what came while an answer was on its way', async () => {
  const reply = await onItsWay();
  server.list = [aKernel({ state: 'queued' })];
  jupyter.event.emit({ schema_id: SESSION_EVENT, state: 'queued' });
  reply([aKernel()]);
  await waitFor(() => expect(model.kernel('k1')?.state).toBe('queued'));
});

it('says that the pool is down, and that it is back', async () => {
  server.answer = aPool({
    ok: false,
    error: 'no pool at unix:/p',
    devices: []
  });
  await model.refresh();
  expect(model.state.problem).toEqual({
    kind: 'pool',
    message: 'no pool at unix:/p'
  });
  server.answer = aPool();
  await model.refresh();
  expect(model.state.problem).toBeNull();
});

it.each([
  [new GpuPoolError('404 Not Found', 'missing', 404), 'missing'],
  [new GpuPoolError('Failed to fetch', 'unreachable', 0), 'server'],
  [new GpuPoolError('403 Forbidden', 'unknown', 403), 'server']
])('tells %p from other troubles', async (error, kind) => {
  server.down = error;
  await model.refresh();
  expect(model.state.problem).toEqual({
    kind,
    message: error.message,
    status: error.status
  });
  server.down = null;
  await model.refresh();
  expect(model.state.problem).toBeNull();
});

it('counts down between two answers', async () => {
  server.list = [aWarnedKernel(30)];
  await model.refresh();
  const ticks: number[] = [];
  model.ticked.connect(() => ticks.push(model.countdown('k1')!));
  await waitFor(() => expect(ticks.length).toBeGreaterThanOrEqual(2));
  expect(ticks[0]).toBeLessThanOrEqual(30);
  expect(ticks[1]).toBeLessThan(ticks[0]);
});

it('counts down from when it was told, however long the pool takes', async () => {
  server.list = [aWarnedKernel(30)];
  const { answer } = server;
  server.pool = () =>
    new Promise(resolve => setTimeout(() => resolve(answer), 1000));
  await model.refresh();
  expect(model.countdown('k1')).toBeLessThanOrEqual(29.05);
});

it('does not tick when nobody counts down', async () => {
  const ticked = jest.fn();
  model.ticked.connect(ticked);
  await new Promise(resolve => setTimeout(resolve, 1500));
  expect(ticked).not.toHaveBeenCalled();
});

it('takes the defaults of the server, and keeps them while it does not answer', async () => {
  expect(model.defaults).toBeNull();
  expect(model.preferences.defaultShare).toBe('0.2');
  server.told = someDefaults({ share: '0.4' });
  let changes = 0;
  model.preferencesChanged.connect(() => (changes += 1));
  await model.refreshDefaults();
  expect(model.defaults?.share).toBe('0.4');
  expect(model.preferences.defaultShare).toBe('0.4');
  expect(changes).toBe(1);
  server.told = null;
  await model.refreshDefaults();
  expect(model.preferences.defaultShare).toBe('0.4');
});

it('asks as seldom as a person wants to', async () => {
  const heard = jest.fn();
  model.preferencesChanged.connect(heard);
  model.applySettings({
    composite: { pollSeconds: 60 }
  } as unknown as ISettingRegistry.ISettings);
  expect(heard).toHaveBeenCalledTimes(1);
  expect(model.preferences.pollSeconds).toBe(60);
  expect(model['_poll'].frequency.interval).toBe(60_000);
});
