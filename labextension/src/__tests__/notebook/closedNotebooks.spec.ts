import { nullTranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { Signal } from '@lumino/signaling';
import { CommandIDs } from '../../commands/ids';
import { GpuPoolModel } from '../../model/model';
import { ClosedNotebooks } from '../../notebook/closedNotebooks';
import { aKernel, anAttachedKernel, aWarnedKernel } from '../samples';
import { Server, Services } from '../server';

let server: Server;
let model: GpuPoolModel;
let said: unknown[][];
let executed: unknown[];

/** A notebook of kernel `k1`, which is closed; `others`: further views, which stay. */
function close(others = 0): void {
  const panel = {
    sessionContext: {
      session: { kernel: { id: 'k1' } },
      kernelChanged: new Signal<object, object>({})
    },
    disposed: new Signal<object, void>({})
  };
  const commands = new CommandRegistry();
  commands.addCommand(CommandIDs.detach, {
    execute: args => executed.push(args)
  });
  const closed = new ClosedNotebooks(
    model,
    commands,
    nullTranslator.load('jupyter_gpupool'),
    (...words) => said.push(words)
  );
  const follow = (one: object) =>
    closed.follow(one as Parameters<typeof closed.follow>[0]);
  follow(panel);
  for (let view = 0; view < others; view += 1) {
    const sessionContext = { ...panel.sessionContext };
    follow({ sessionContext, disposed: new Signal<object, void>({}) });
  }
  // As JupyterLab does: the kernel goes before the notebook.
  panel.sessionContext.kernelChanged.emit({ newValue: null });
  panel.disposed.emit();
}

beforeEach(async () => {
  said = [];
  executed = [];
  server = new Server();
  model = new GpuPoolModel({
    serviceManager: new Services().services,
    api: server,
    standby: 'never'
  });
});

afterEach(() => {
  jest.useRealTimers();
  model.dispose();
});

async function afterClose(others = 0): Promise<void> {
  await model.refresh();
  jest.useFakeTimers({ doNotFake: ['queueMicrotask', 'Date', 'performance'] });
  close(others);
  await jest.advanceTimersByTimeAsync(2000);
}

it('is told of when its kernel still holds a GPU', async () => {
  const { idle } = aWarnedKernel(30);
  const release_at = null;
  server.list = [anAttachedKernel({ idle: { ...idle!, release_at } })];
  await afterClose();
  expect(said).toHaveLength(1);
  expect(said[0][0]).toBe('train.ipynb still holds 0.2 GPU.');
  const [action] = (said[0][1] as { actions: { callback: () => void }[] })
    .actions;
  action.callback();
  expect(executed).toEqual([{ kernelId: 'k1' }]);
});

it('says until when', async () => {
  server.list = [aWarnedKernel(40)];
  await afterClose();
  expect(said[0][0]).toMatch(
    /^train\.ipynb still holds 0\.2 GPU\. If nothing uses it, it goes back at \d+:\d\d/
  );
});

it('does not say that a share goes back that a cell uses', async () => {
  server.list = [anAttachedKernel({ busy: true })];
  await afterClose();
  expect(said[0][0]).toBe('train.ipynb still holds 0.2 GPU.');
});

it('is not worth a word without a GPU', async () => {
  server.list = [aKernel()];
  await afterClose();
  expect(said).toEqual([]);
});

it('is not told of while another view shows its kernel', async () => {
  server.list = [anAttachedKernel()];
  await afterClose(1);
  expect(said).toEqual([]);
});
