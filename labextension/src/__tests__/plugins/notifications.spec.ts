import { Notification, NotificationManager } from '@jupyterlab/apputils';
import { nullTranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import type { GpuPool } from '../../api/types';
import { CommandIDs } from '../../commands/commands';
import { GpuPoolModel } from '../../model/model';
import { GpuNotifications } from '../../plugins/notifications';
import {
  aKernel,
  anAttachedKernel,
  aQueuePlace,
  aRelease,
  aWarnedKernel,
  words
} from '../samples';
import { Server, Services } from '../server';

// The package wants more of a page than jsdom has; here it only names a token.
jest.mock('@jupyterlab/notebook', () => ({ INotebookTracker: {} }));

let server: Server;
let model: GpuPoolModel;
let manager: NotificationManager;
let executed: [string, unknown][];
/** What the notebook of each kernel notes. */
let noted: GpuPool.IAttachOptions | null;

beforeEach(() => {
  noted = null;
  server = new Server();
  model = new GpuPoolModel({
    serviceManager: new Services().services,
    api: server,
    standby: 'never'
  });
  manager = new NotificationManager();
  executed = [];
  const commands = new CommandRegistry();
  for (const id of Object.values(CommandIDs)) {
    commands.addCommand(id, { execute: args => executed.push([id, args]) });
  }
  new GpuNotifications(
    model,
    commands,
    nullTranslator.load('jupyter_gpupool'),
    { of: () => noted, remember: () => undefined },
    manager
  );
});

afterEach(() => {
  model.dispose();
  manager.dispose();
});

async function now(...kernels: GpuPool.IKernel[]): Promise<void> {
  server.list = kernels;
  await model.refresh();
}

function press(notification: Notification.INotification, label: string): void {
  const action = notification.options.actions?.find(a => a.label === label);
  action!.callback(new MouseEvent('click'));
}

it('warns of a countdown and offers to keep the GPU', async () => {
  await now(aWarnedKernel(37));
  const [shown] = manager.notifications;
  expect(shown.type).toBe('warning');
  expect(shown.message).toBe(
    'train.ipynb does not use its GPU and gives it back in 40 s.'
  );
  expect(shown.options.autoClose).toBe(false);
  press(shown, 'Keep');
  expect(executed).toEqual([[CommandIDs.keep, { kernelId: 'k1' }]]);
});

it('does not count to nothing when the GPU has just been used', async () => {
  await now(aWarnedKernel(37));
  const [{ message }] = manager.notifications;
  const used = aWarnedKernel(37);
  await now({ ...used, idle: { ...used.idle!, countdown: null } });
  await new Promise(resolve => setTimeout(resolve, 1200));
  expect(manager.notifications[0].message).toBe(message);
});

it('takes the warning back when the GPU is used again', async () => {
  await now(aWarnedKernel(37));
  await now(anAttachedKernel());
  expect(manager.count).toBe(0);
});

it('takes the warning back when the kernel is gone', async () => {
  await now(aWarnedKernel(37));
  await now();
  expect(manager.count).toBe(0);
});

it('says why a GPU was given back, and offers the same share again', async () => {
  await now(aWarnedKernel(1));
  await now(aKernel({ state: 'parked', reason: 'idle' }));
  expect(manager.count).toBe(1);
  const [shown] = manager.notifications;
  expect(shown.message).toBe(
    'train.ipynb: Given back because it was not used.'
  );
  press(shown, 'Attach again');
  expect(executed).toEqual([
    [CommandIDs.attach, { kernelId: 'k1', share: '0.2' }]
  ]);
});

describe('attaching again', () => {
  const project = 'research/vision';
  const note: GpuPool.IAttachOptions = { share: '0.2', strict: true };

  /** The share of a kernel goes back, held by whom; then its button is pressed. */
  async function attachAgain(
    part: Partial<GpuPool.IKernel> = {},
    meanwhile: () => void = () => undefined
  ): Promise<void> {
    await now(aWarnedKernel(1, { project, ...part }));
    await now(aKernel({ state: 'parked', reason: 'idle', project, ...part }));
    meanwhile();
    press(manager.notifications[0], 'Attach again');
  }

  it.each([
    note,
    { share: '1587MiB', project },
    { share: '20%', count: 1, kind: 'guaranteed' }
  ] as const)('asks for all that the notebook notes (%j)', async terms => {
    noted = terms;
    await attachAgain();
    // A note may leave the project to the server: it counts against the same.
    expect(executed).toEqual([
      [CommandIDs.attach, { kernelId: 'k1', ...terms, project }]
    ]);
  });

  it.each([
    { share: '0.3' },
    { share: '0.2', count: 2 },
    { share: '0.2', project: 'sound' }
  ])('asks for what was held where the note is another (%j)', async terms => {
    noted = terms;
    await attachAgain();
    expect(executed).toEqual([
      [CommandIDs.attach, { kernelId: 'k1', share: '0.2', project }]
    ]);
  });

  it.each(['attach', 'auto', 'magic'] as const)(
    'asks for what was held where the note is not of that (%s)',
    async by => {
      noted = note;
      await attachAgain({ by });
      expect(executed).toEqual([
        [CommandIDs.attach, { kernelId: 'k1', share: '0.2', project }]
      ]);
    }
  );

  it('asks for what was held then, also when the notebook is closed or notes something else', async () => {
    for (const later of [null, { share: '0.9' }]) {
      executed = [];
      noted = note;
      await attachAgain({}, () => {
        noted = later;
      });
      expect(executed).toEqual([
        [CommandIDs.attach, { kernelId: 'k1', ...note, project }]
      ]);
    }
  });
});

describe('a release that can be undone', () => {
  const released = aRelease({
    message: 'Released after 10 min without use: 0.2 of vm/0 is free again.',
    undo_seconds: 100
  });
  const parked = (part: Partial<GpuPool.IReleased> = {}) =>
    aKernel({
      state: 'parked',
      reason: 'idle',
      released: { ...released, ...part }
    });

  it('says what was freed, and is undone by one press', async () => {
    await now(aWarnedKernel(1));
    await now(parked());
    const [shown] = manager.notifications;
    expect(shown.message).toBe(`train.ipynb: ${released.message}`);
    press(shown, 'Undo');
    expect(executed).toEqual([[CommandIDs.undo, { kernelId: 'k1' }]]);
  });

  it('is not called free before it is, and then is', async () => {
    await now(aWarnedKernel(1));
    const message = '0.2 of vm/0 is not free yet: forever runs.';
    await now(parked({ message, draining: true }));
    const [shown] = manager.notifications;
    expect(shown.message).toBe(`train.ipynb: ${message}`);
    await now(parked());
    expect(manager.notifications[0].message).toBe(
      `train.ipynb: ${released.message}`
    );
  });

  it('is asked for anew when it is pressed too late', async () => {
    await now(aWarnedKernel(1));
    await now(parked());
    const [shown] = manager.notifications;
    await now(parked({ undo_seconds: 0 }));
    press(shown, 'Undo');
    expect(executed).toEqual([
      [CommandIDs.attach, { kernelId: 'k1', share: '0.2' }]
    ]);
  });

  it('counts against the same project when it is asked for anew', async () => {
    await now(aWarnedKernel(1));
    await now({ ...parked({ undo_seconds: 0 }), project: 'research/vision' });
    press(manager.notifications[0], 'Attach again');
    expect(executed[0][1]).toMatchObject({ project: 'research/vision' });
  });

  it('is not offered any more when its memory or kernel is gone', async () => {
    await now(aWarnedKernel(1));
    await now(parked());
    await now(aKernel({ state: 'none' }));
    expect(manager.count).toBe(0);
    await now(aWarnedKernel(1));
    await now(parked());
    expect(manager.count).toBe(1);
    await now();
    expect(manager.count).toBe(0);
  });

  it('needs no offer when it is attached again elsewhere', async () => {
    await now(aWarnedKernel(1));
    await now(parked());
    await now(anAttachedKernel());
    expect(manager.count).toBe(0);
  });
});

it('warns no earlier than a person wants', async () => {
  model.applySettings({ composite: { warnSeconds: 20 } } as never);
  await now(aWarnedKernel(37));
  expect(manager.count).toBe(0);
  await now(aWarnedKernel(15));
  await until(() => manager.count === 1);
  expect(manager.notifications[0].message).toContain('in 15 s');
});

it('shows a lost node as an error', async () => {
  await now(anAttachedKernel());
  await now(aKernel({ state: 'lost', reason: 'lost' }));
  expect(manager.notifications[0].type).toBe('error');
});

it.each(['exit', 'release'])(
  'is silent about what one did oneself (%s)',
  async reason => {
    await now(anAttachedKernel());
    await now(aKernel({ state: 'parked', reason }));
    expect(manager.count).toBe(0);
  }
);

it('is silent about what happened before the page was opened', async () => {
  await now(aKernel({ state: 'parked', reason: 'idle' }));
  expect(manager.count).toBe(0);
});

it('says for whom a GPU is asked back, and then that it waits', async () => {
  const notice: GpuPool.INotice = {
    reason: 'reclaim',
    seconds_left: 28,
    explanation: 'Project b is entitled to it.',
    said: words('Project b is entitled to it.'),
    returns: true
  };
  await now(anAttachedKernel());
  await now(anAttachedKernel({ state: 'warned', reason: 'reclaim', notice }));
  const [told] = manager.notifications;
  expect(told.message).toBe(
    'The GPU of train.ipynb is asked back in 30 s; what is in GPU memory is kept. Because: Project b is entitled to it.'
  );
  const queue = aQueuePlace({ reason: 'Nothing is free.' });
  await now(
    aKernel({ state: 'queued', returning: true, reason: 'reclaim', queue })
  );
  const [waits] = manager.notifications;
  expect(manager.notifications).toHaveLength(1);
  expect(waits.message).toBe(
    'train.ipynb: Taken back for a project that is entitled to it. It waits for it to come again; what is in GPU memory is kept.'
  );
  press(waits, 'Cancel');
  expect(executed).toEqual([[CommandIDs.cancelQueue, { kernelId: 'k1' }]]);
  await now(anAttachedKernel());
  expect(manager.notifications).toHaveLength(0);
});

it('tells of a notice also to one that was warned of its idleness', async () => {
  await now(aWarnedKernel(37));
  await now(
    aWarnedKernel(30, {
      notice: {
        reason: 'preempt',
        seconds_left: 30,
        explanation: 'More important work waits',
        said: words('More important work waits'),
        returns: false
      }
    })
  );
  const [told] = manager.notifications;
  expect(manager.notifications).toHaveLength(1);
  expect(told.message).toBe(
    'The GPU of train.ipynb is asked back in 30 s; what is in GPU memory is kept. Because: More important work waits'
  );
});

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) {
    await new Promise(resolve => setTimeout(resolve, 20));
  }
}

const asked = { share: '0.5', count: 2, project: 'research/vision' };
const waiting = (cell: boolean) =>
  aKernel({ state: 'queued', queue: aQueuePlace({ cell, asked }) });
const refused = aKernel({ reason: 'timeout', message: 'Nothing became free.' });

it('says that a request which waited got nothing', async () => {
  await now(waiting(false));
  await now(refused);
  const [shown] = manager.notifications;
  expect([shown.type, shown.message]).toEqual([
    'error',
    'train.ipynb got no GPU: Nothing became free.'
  ]);
  press(shown, 'Try again');
  expect(executed).toEqual([[CommandIDs.attach, { kernelId: 'k1', ...asked }]]);
});

it('says so also of one that was released before', async () => {
  const released = aRelease();
  await now(waiting(false));
  await now({ ...refused, released });
  await now({ ...refused, released, last_status: 'idle' } as GpuPool.IKernel);
  expect(manager.notifications.map(({ message }) => message)).toEqual([
    'train.ipynb got no GPU: Nothing became free.'
  ]);
});

it('leaves that to the cell, or to whoever waits for it', async () => {
  await now(waiting(true));
  await now(refused);
  await now(waiting(false));
  const following = model.follow('k1');
  await now(refused);
  following.dispose();
  expect(manager.count).toBe(0);
});

it('says nothing when a person leaves the queue', async () => {
  await now(waiting(false));
  await now(aKernel());
  expect(manager.count).toBe(0);
});
