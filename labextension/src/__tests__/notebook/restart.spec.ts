import { Notification, type ISessionContext } from '@jupyterlab/apputils';
import { nullTranslator } from '@jupyterlab/translation';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { CommandRegistry } from '@lumino/commands';
import { GpuPoolError } from '../../api/client';
import type { GpuPool } from '../../api/types';
import { CommandIDs } from '../../commands/ids';
import { GpuPoolModel } from '../../model/model';
import { AttachAgain } from '../../notebook/attachAgain';
import { RestartHook } from '../../notebook/restartHook';
import { aKernel, anAttachedKernel, aQueuePlace } from '../samples';
import { Server, Services } from '../server';

let server: Server;
let model: GpuPoolModel;
let commands: CommandRegistry;
let noted: GpuPool.IAttachOptions | null;
/** What happened, in order. */
let story: string[];
let accepted: boolean;

beforeEach(() => {
  server = new Server();
  model = new GpuPoolModel({
    serviceManager: new Services().services,
    api: server,
    standby: 'never'
  });
  commands = new CommandRegistry();
  noted = null;
  story = [];
  accepted = true;
  const dialogs = {
    restart: async () => {
      story.push('restart');
      server.list = [aKernel()];
      return accepted;
    }
  } as unknown as ISessionContext.IDialogs;
  const again = new AttachAgain(model, {
    of: () => noted,
    remember: () => undefined
  });
  new RestartHook(
    commands,
    model,
    dialogs,
    again,
    nullTranslator.load('jupyter_gpupool')
  );
  const context = {
    name: 'train.ipynb',
    session: { kernel: { id: 'k1' } }
  } as unknown as ISessionContext;
  // As JupyterLab's own commands do it.
  commands.addCommand('notebook:restart-kernel', {
    execute: () => dialogs.restart(context)
  });
  commands.addCommand('notebook:restart-run-all', {
    execute: async () => {
      if (await dialogs.restart(context)) {
        story.push(
          `run with ${server.options.map(({ share }) => share).join() || 'no GPU'}`
        );
      }
    }
  });
});

afterEach(() => {
  model.dispose();
  Notification.dismiss();
});

async function now(...kernels: GpuPool.IKernel[]): Promise<void> {
  server.list = kernels;
  await model.refresh();
}

const runAll = () => commands.execute('notebook:restart-run-all');
const messages = () => Notification.manager.notifications.map(n => n.message);

it('asks for what the notebook was attached with before its cells run', async () => {
  noted = { share: '0.5', project: 'research' };
  await now(anAttachedKernel());
  await runAll();
  expect(server.options).toEqual([noted]);
  expect(story).toEqual(['restart', 'run with 0.5']);
  expect(messages()).toEqual([]);
});

it('asks for what is held where no notebook says so', async () => {
  await now(
    anAttachedKernel({
      share: { milli: 300, mib: 1, count: 2 },
      project: 'research'
    })
  );
  await runAll();
  expect(server.options).toEqual([
    { share: '0.3', count: 2, project: 'research' }
  ]);
});

it('attaches what %gpu attach holds as it is held, whatever the notebook notes', async () => {
  noted = { share: '0.5' };
  await now(
    anAttachedKernel({ by: 'attach', share: { milli: 300, mib: 1, count: 1 } })
  );
  await commands.execute('notebook:restart-kernel');
  expect(server.options).toEqual([{ share: '0.3' }]);
});

it('attaches a notebook that was attached by hand at another time, when all cells run', async () => {
  noted = { share: '0.5' };
  await now(aKernel());
  await commands.execute('notebook:restart-kernel');
  expect(server.options).toEqual([]);
  await runAll();
  expect(server.options).toEqual([noted]);
});

it('attaches a kernel that is only restarted if it held a share', async () => {
  await now(anAttachedKernel());
  await commands.execute('notebook:restart-kernel');
  expect(server.options).toEqual([{ share: '0.2' }]);
});

it('leaves alone what a person has detached', async () => {
  noted = { share: '0.5' };
  const released = { reason: 'release', undo_seconds: 0 } as GpuPool.IReleased;
  await now(aKernel({ state: 'parked', released }));
  await runAll();
  expect(story).toEqual(['restart', 'run with no GPU']);
});

it.each(['magic', 'auto'] as const)(
  'leaves alone what a cell attached by itself (%s)',
  async by => {
    noted = { share: '0.5' };
    await now(anAttachedKernel({ by }));
    await runAll();
    expect(story).toEqual(['restart', 'run with no GPU']);
  }
);

it('does nothing when it is switched off, or the restart is cancelled', async () => {
  await now(anAttachedKernel());
  accepted = false;
  await runAll();
  expect(story).toEqual(['restart']);
  accepted = true;
  model.applySettings({ composite: { attachOnRestart: false } } as never);
  await now(anAttachedKernel());
  await runAll();
  expect(server.options).toEqual([]);
});

it('shows that it waits, and runs the cells when the GPU comes', async () => {
  await now(anAttachedKernel());
  server.attached = aKernel({ state: 'queued' });
  const ran = runAll();
  await until(() => messages().length > 0);
  await until(() => model.kernel('k1')?.state === 'queued');
  expect(messages()).toEqual([
    'train.ipynb waits for 0.2 GPU before its cells run.'
  ]);
  expect(story).toEqual(['restart']);
  await now(anAttachedKernel());
  await ran;
  expect(story).toEqual(['restart', 'run with 0.2']);
  expect(messages()).toEqual([]);
});

it('can be told not to wait; then no cell is run', async () => {
  const cancelled: unknown[] = [];
  commands.addCommand(CommandIDs.cancelQueue, {
    execute: args => cancelled.push(args)
  });
  await now(anAttachedKernel());
  server.attached = aKernel({ state: 'queued' });
  const ran = runAll();
  await until(() => model.kernel('k1')?.state === 'queued');
  const [waiting] = Notification.manager.notifications;
  waiting.options.actions![0].callback(new MouseEvent('click'));
  expect(cancelled).toEqual([{ kernelId: 'k1' }]);
  await now(aKernel());
  await ran;
  expect(story).toEqual(['restart']);
  expect(messages()[0]).toContain('no cell was run, without 0.2 GPU');
});

it('runs no cell when the pool refuses, and says why', async () => {
  await now(anAttachedKernel());
  server.refusal = new GpuPoolError('The quota is 0.1.', 'quota', 409);
  await runAll();
  expect(story).toEqual(['restart']);
  expect(messages()).toEqual([
    'train.ipynb: no cell was run, without 0.2 GPU. The quota is 0.1.'
  ]);
});

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) {
    await new Promise(resolve => setTimeout(resolve, 5));
  }
}

it('waits for the GPU behind another tab, too', async () => {
  model.dispose();
  const visibility = jest
    .spyOn(document, 'visibilityState', 'get')
    .mockReturnValue('hidden');
  // As the page makes it: where nobody looks, it rests.
  model = new GpuPoolModel({
    serviceManager: new Services().services,
    api: server
  });
  model.applySettings({
    composite: { pollSeconds: 1 }
  } as unknown as ISettingRegistry.ISettings);
  try {
    server.attached = aKernel({ state: 'queued', queue: aQueuePlace() });
    const outcome = new AttachAgain(model, null).attach('k1', { share: '0.5' });
    const polls = () => server.calls.filter(call => call === 'pool').length;
    await until(() => server.calls.includes('attach k1 0.5'));
    expect(model.isFollowed('k1')).toBe(true);
    const before = polls();
    await until(() => polls() >= before + 3);
    server.list = [anAttachedKernel()];
    expect(await outcome).toBe('attached');
    expect(model.isFollowed('k1')).toBe(false);
  } finally {
    visibility.mockRestore();
  }
}, 30_000);
