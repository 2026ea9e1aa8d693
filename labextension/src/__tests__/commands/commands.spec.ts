import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { nullTranslator } from '@jupyterlab/translation';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { CommandRegistry } from '@lumino/commands';
import { waitFor } from '@testing-library/dom';
import Ajv from 'ajv';
import { GpuPoolError } from '../../api/client';
import type { GpuPool } from '../../api/types';
import { addCommands, CommandIDs } from '../../commands/commands';
import { GpuPoolModel } from '../../model/model';
import { GpuRunningManager } from '../../plugins/running';
import { answerDialog, theDialog } from '../dialog';
import { aKernel, anAttachedKernel, aRelease, aWarnedKernel } from '../samples';
import { Server, Services } from '../server';

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

/** The menu belongs to the toolbar, the dashboard to its own plugin. */
const ids = Object.values(CommandIDs).filter(
  id => id !== CommandIDs.menu && id !== CommandIDs.openDashboard
);

it.each(ids)(
  '%s describes itself, and each argument by type and words',
  async id => {
    await now(aKernel());
    expect(commands.label(id)).not.toBe('');
    expect(commands.caption(id)).not.toBe('');
    const { args } = await commands.describedBy(id);
    const validate = new Ajv({ allowUnionTypes: true }).compile(args!);
    expect(validate({})).toBe(true);
    const properties = Object.entries(
      (args as { properties: Record<string, Record<string, unknown>> })
        .properties
    );
    for (const [, property] of properties) {
      expect(property).toHaveProperty('type');
      expect(String(property.description)).toMatch(/\w.*\.$/);
    }
  }
);

it.each([
  [CommandIDs.attach, { share: '0.5', count: 2, nodes: 'any', strict: true }],
  [CommandIDs.attach, { project: 'a/b', kind: 'guaranteed', priority: 5 }],
  [CommandIDs.attach, { filters: ['memory>=40GiB'], node_pools: ['a'] }],
  [CommandIDs.setIdle, { kernelId: 'k1', minutes: null }],
  [CommandIDs.keep, { minutes: 10, quiet: true }],
  [CommandIDs.releaseAll, { confirmed: true }]
] as const)('%s takes %j', async (id, given) => {
  const { args } = await commands.describedBy(id);
  expect(new Ajv({ allowUnionTypes: true }).validate(args!, given)).toBe(true);
});

it.each([
  [CommandIDs.attach, { share: 0.5 }],
  [CommandIDs.attach, { count: 0 }],
  [CommandIDs.attach, { nodes: 'two' }],
  [CommandIDs.attach, { filters: 'memory' }],
  [CommandIDs.setIdle, { minutes: -1 }],
  [CommandIDs.releaseAll, { confirmed: 'yes' }]
] as const)('the schema of %s does not allow %j', async (id, given) => {
  const { args } = await commands.describedBy(id);
  expect(new Ajv({ allowUnionTypes: true }).validate(args!, given)).toBe(false);
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

it('asks how much, and attaches that', async () => {
  await now(aKernel());
  const attached = commands.execute(CommandIDs.attachWith);
  const dialog = await theDialog('Attach');
  const input = dialog.querySelector('input')!;
  expect(input.value).toBe('0.2');
  input.value = '0.35';
  await answerDialog('Attach');
  await attached;
  expect(verbs()).toEqual(['attach k1 0.35']);
});

it('does not take an empty answer for the default', async () => {
  await now(aKernel());
  const attached = commands.execute(CommandIDs.attachWith);
  const dialog = await theDialog('Attach');
  dialog.querySelector('input')!.value = ' ';
  await answerDialog('Attach');
  await attached;
  expect(verbs()).toEqual([]);
  expect(messages()).toEqual(['Say how much: 0.2, 20% or 2560MiB.']);
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
  it('asks, and takes no for an answer', async () => {
    await now(anAttachedKernel({ busy: true }));
    const detached = commands.execute(CommandIDs.detach);
    await answerDialog('Cancel');
    await detached;
    expect(verbs()).toEqual([]);
  });

  it('takes the GPU from the cell when told to', async () => {
    await now(anAttachedKernel({ busy: true }));
    const detached = commands.execute(CommandIDs.detach);
    await answerDialog('Detach');
    await detached;
    expect(verbs()).toEqual(['detach k1 by force']);
  });

  it('asks when a cell has begun since the last poll', async () => {
    await now(anAttachedKernel());
    server.refusal = new GpuPoolError('A cell is running.', 'running', 409);
    const detached = commands.execute(CommandIDs.detach);
    server.list = [anAttachedKernel({ busy: true })];
    await waitFor(() => expect(verbs()).toEqual(['detach k1']));
    server.refusal = null;
    await answerDialog('Detach');
    await detached;
    expect(verbs()).toEqual(['detach k1', 'detach k1 by force']);
  });

  it('does not ask when the cell has ended since the last poll', async () => {
    await now(anAttachedKernel({ busy: true }));
    server.list = [anAttachedKernel()];
    await commands.execute(CommandIDs.detach);
    expect(verbs()).toEqual(['detach k1']);
  });
});

describe('detaching while code outside of a cell uses the GPU', () => {
  const message = 'Running code still uses the GPU.';

  beforeEach(async () => {
    server.detached = anAttachedKernel({ by: 'magic', message });
    await now(anAttachedKernel());
  });

  it('asks, and takes the GPU from the code when told to', async () => {
    const detached = commands.execute(CommandIDs.detach);
    const said = await answerDialog('Detach');
    expect(said).toContain('Code of this kernel still uses the GPU');
    await detached;
    expect(verbs()).toEqual(['detach k1', 'detach k1 by force']);
    expect(model.state.failures.size).toBe(0);
  });

  it('says why the GPU stays for now when told not to', async () => {
    const detached = commands.execute(CommandIDs.detach);
    await answerDialog('Cancel');
    await detached;
    await model.refresh();
    expect(verbs()).toEqual(['detach k1']);
    expect([...model.state.failures]).toEqual([['k1', message]]);
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
    expect(verbs()).toEqual(['detach holds by force', 'cancel waits']);
  });

  it('are released by the palette after a question that says what stops', async () => {
    await now(
      anAttachedKernel({ kernel_id: 'busy', busy: true }),
      anAttachedKernel({ kernel_id: 'quiet' })
    );
    expect(commands.isEnabled(CommandIDs.releaseAll)).toBe(true);
    const released = commands.execute(CommandIDs.releaseAll);
    const said = await answerDialog('Release All');
    expect(said).toContain('GPU shares of 2 kernels?');
    expect(said).toContain('1 of them runs a cell');
    await released;
    expect(verbs()).toEqual(['detach busy by force', 'detach quiet by force']);
  });

  it('can be none', async () => {
    await now(aKernel());
    expect(commands.isEnabled(CommandIDs.releaseAll)).toBe(false);
  });
});

describe('a release', () => {
  const released = aRelease({ undo_seconds: 100 });

  it('is undone while that is offered, by the share it was', async () => {
    await now(aKernel({ state: 'parked', released }));
    expect(commands.label(CommandIDs.undo)).toBe('Undo: Attach 0.2 GPU Again');
    expect(commands.isEnabled(CommandIDs.undo)).toBe(true);
    await commands.execute(CommandIDs.undo);
    expect(verbs()).toEqual(['undo k1']);
  });

  it('is not undone later', async () => {
    const late = { ...released, undo_seconds: 0 };
    await now(aKernel({ state: 'parked', released: late }));
    expect(commands.isEnabled(CommandIDs.undo)).toBe(false);
  });
});

describe('how long a kernel may be idle', () => {
  it('is chosen by the kernel, and shown as chosen', async () => {
    const { idle } = aWarnedKernel(30);
    await now(anAttachedKernel({ idle: { ...idle!, choice_minutes: 30 } }));
    const toggled = (minutes: number | null) =>
      commands.isToggled(CommandIDs.setIdle, { minutes });
    expect([toggled(30), toggled(10), toggled(null)]).toEqual([
      true,
      false,
      false
    ]);
    await commands.execute(CommandIDs.setIdle, { minutes: null });
    await commands.execute(CommandIDs.setIdle, { minutes: 0 });
    expect(verbs()).toEqual(['idle k1 null', 'idle k1 0']);
  });

  it('is what a person has set, for a kernel that has chosen nothing', async () => {
    const { idle } = aWarnedKernel(30);
    await now(aKernel());
    model.applySettings({
      composite: { idleMinutes: 45 }
    } as unknown as ISettingRegistry.ISettings);
    server.attached = anAttachedKernel({ idle });
    await commands.execute(CommandIDs.attach);
    expect(verbs()).toEqual(['attach k1 0.2', 'idle k1 45']);

    await now(aKernel());
    server.attached = anAttachedKernel({
      idle: { ...idle!, choice_minutes: 5 }
    });
    await commands.execute(CommandIDs.attach);
    expect(verbs()).toEqual(['attach k1 0.2']);
  });
});
