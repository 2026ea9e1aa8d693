import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { nullTranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { GpuPoolError } from '../api';
import { addCommands, CommandIDs } from '../commands';
import { GpuPoolModel } from '../model';
import { GpuRunningManager } from '../plugins/running';
import type { GpuPool } from '../tokens';
import { aKernel, anAttachedKernel } from './samples';
import { Server, Services } from './server';

let server: Server;
let model: GpuPoolModel;
let commands: CommandRegistry;
/** The document in front, as the shell has it. */
let current: object | null;
const activated: string[] = [];
const trans = nullTranslator.load('jupyter_gpupool');

beforeEach(() => {
  server = new Server();
  model = new GpuPoolModel({
    serviceManager: new Services().services,
    api: server,
    standby: 'never'
  });
  commands = new CommandRegistry();
  current = { sessionContext: { session: { kernel: { id: 'k1' } } } };
  const shell = {
    get currentWidget() {
      return current;
    },
    activateById: (id: string) => activated.push(id)
  };
  addCommands({ commands, shell } as unknown as JupyterFrontEnd, model, trans);
});

afterEach(() => {
  model.dispose();
  Notification.dismiss();
  document.body.replaceChildren();
});

async function now(...kernels: GpuPool.IKernel[]): Promise<void> {
  server.list = kernels;
  await model.refresh();
  server.calls.length = 0;
}

const verbs = () => server.calls.filter(call => call !== 'pool');
const messages = () => Notification.manager.notifications.map(n => n.message);

it('every command describes itself and its arguments', async () => {
  await now(aKernel());
  for (const id of Object.values(CommandIDs)) {
    expect(commands.label(id)).not.toBe('');
    expect(commands.caption(id)).not.toBe('');
    expect((await commands.describedBy(id)).args).toHaveProperty('type');
  }
});

it('acts on the kernel of the document in front', async () => {
  await now(aKernel());
  expect(commands.isEnabled(CommandIDs.attach)).toBe(true);
  await commands.execute(CommandIDs.attach);
  expect(verbs()).toEqual(['attach k1 0.2']);
});

it('acts on the kernel it is told', async () => {
  await now(aKernel(), aKernel({ kernel_id: 'k2' }));
  await commands.execute(CommandIDs.attach, { kernelId: 'k2', share: '50%' });
  expect(verbs()).toEqual(['attach k2 50%']);
});

it.each([
  ['none', [CommandIDs.attach]],
  ['parked', [CommandIDs.attach]],
  ['queued', [CommandIDs.cancelQueue]],
  ['attached', [CommandIDs.detach, CommandIDs.keep, CommandIDs.resize]],
  ['warned', [CommandIDs.detach, CommandIDs.keep, CommandIDs.resize]]
] as const)(
  'offers what makes sense for a kernel that is %s',
  async (state, offered) => {
    await now(aKernel({ state }));
    const enabled = [
      CommandIDs.attach,
      CommandIDs.detach,
      CommandIDs.keep,
      CommandIDs.resize,
      CommandIDs.cancelQueue
    ].filter(id => commands.isEnabled(id));
    expect(enabled).toEqual(offered);
  }
);

it('says so when there is no kernel, even if it is executed nevertheless', async () => {
  await now();
  current = { isDisposed: false };
  expect(commands.isEnabled(CommandIDs.attach)).toBe(false);
  await commands.execute(CommandIDs.attach);
  expect(verbs()).toEqual([]);
  expect(messages()).toEqual([
    'There is no running kernel to attach a GPU to.'
  ]);
});

it('does not ask for a share that cannot be', async () => {
  await now(aKernel());
  await commands.execute(CommandIDs.attach, { share: '1.7' });
  expect(verbs()).toEqual([]);
  expect(messages()).toEqual(['A share is at most 1, a whole GPU.']);
});

it('shows a refusal as a notification, unless the caller shows it', async () => {
  await now(aKernel());
  server.refusal = new GpuPoolError('0.9 is not free', 'full', 409);
  await commands.execute(CommandIDs.attach, { quiet: true });
  expect(messages()).toEqual([]);
  await commands.execute(CommandIDs.attach);
  expect(messages()).toEqual(['0.9 is not free']);
});

describe('detaching while a cell runs', () => {
  /** Presses a button of the dialog, once it is there. */
  async function answer(label: string): Promise<void> {
    for (;;) {
      const buttons = [...document.querySelectorAll('.jp-Dialog button')];
      const button = buttons.find(b => b.textContent?.trim() === label);
      if (button) {
        (button as HTMLElement).click();
        return;
      }
      await new Promise(resolve => setTimeout(resolve, 10));
    }
  }

  it('asks, and takes no for an answer', async () => {
    await now(anAttachedKernel({ busy: true }));
    const detached = commands.execute(CommandIDs.detach);
    await answer('Cancel');
    await detached;
    expect(verbs()).toEqual([]);
  });

  it('takes the GPU from the cell when told to', async () => {
    await now(anAttachedKernel({ busy: true }));
    const detached = commands.execute(CommandIDs.detach);
    await answer('Detach');
    await detached;
    expect(verbs()).toEqual(['detach k1 by force']);
  });

  it('does not ask when the cell has ended since the last poll', async () => {
    await now(anAttachedKernel({ busy: true }));
    server.list = [anAttachedKernel()];
    await commands.execute(CommandIDs.detach);
    expect(verbs()).toEqual(['detach k1']);
  });
});

it('opens the sidebar', async () => {
  await commands.execute(CommandIDs.openSidebar);
  expect(activated).toEqual(['gpupool-sidebar']);
});

describe('among the running sessions', () => {
  it('are the kernels that hold or wait, and all can be released', async () => {
    const running = new GpuRunningManager(model, commands, trans);
    await now(
      aKernel({ kernel_id: 'none' }),
      anAttachedKernel({ kernel_id: 'holds' }),
      aKernel({ kernel_id: 'waits', state: 'queued' })
    );
    expect(running.running().map(item => item.detail?.())).toEqual([
      '0.2 GPU · 1.5 GiB',
      'queued'
    ]);
    running.shutdownAll();
    expect(verbs()).toEqual(['detach holds', 'cancel waits']);
  });
});
