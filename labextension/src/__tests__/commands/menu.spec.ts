import { nullTranslator } from '@jupyterlab/translation';
import type { GpuPool } from '../../api/types';
import { CommandIDs } from '../../commands/ids';
import { menuEntries, type MenuEntry } from '../../commands/menu';
import { readPreferences } from '../../model/preferences';
import {
  aKernel,
  anAttachedKernel,
  aRelease,
  aWarnedKernel,
  someDefaults,
  words
} from '../samples';

const trans = nullTranslator.load('jupyter_gpupool');

function entries(
  kernel: GpuPool.IKernel | undefined,
  more: {
    suggested?: GpuPool.IAttachOptions;
    defaults?: GpuPool.IDefaults;
    dashboard?: boolean;
  } = {}
): MenuEntry[] {
  return menuEntries(
    'k1',
    kernel,
    more.suggested ?? null,
    { preferences: readPreferences({}), defaults: more.defaults ?? null },
    more.dashboard ?? false,
    trans
  );
}

/** The commands on the first level, by name, and submenus by title. */
const names = (found: MenuEntry[]) =>
  found.map(entry =>
    entry === 'separator'
      ? '-'
      : 'submenu' in entry
        ? entry.submenu
        : entry.command.replace('gpupool:', '')
  );

function submenu(found: MenuEntry[], title: string): readonly MenuEntry[] {
  for (const entry of found) {
    if (
      entry !== 'separator' &&
      'submenu' in entry &&
      entry.submenu === title
    ) {
      return entry.entries;
    }
  }
  throw new Error(`no submenu ${title}`);
}

it('offers the default and other shares to a kernel without a GPU', () => {
  const found = entries(aKernel());
  expect(found).toEqual([
    { command: CommandIDs.attach, args: { kernelId: 'k1' } },
    ...['0.1', '0.25', '0.5', '1'].map(share => ({
      command: CommandIDs.attach,
      args: { kernelId: 'k1', share }
    })),
    { command: CommandIDs.attachWith, args: { kernelId: 'k1' } },
    'separator',
    { command: CommandIDs.openSidebar, args: {} }
  ]);
});

it('does not offer what the notebook was attached with twice', () => {
  const found = entries(aKernel(), { suggested: { share: '0.5' } });
  expect(names(found).filter(name => name === 'attach')).toHaveLength(4);
});

it('offers to undo first, as long as that is possible', () => {
  const released = aRelease({ undo_seconds: 5 });
  expect(names(entries(aKernel({ state: 'parked', released })))[0]).toBe(
    'undo'
  );
  const late = { ...released, undo_seconds: 0 };
  expect(
    names(entries(aKernel({ state: 'parked', released: late })))
  ).not.toContain('undo');
});

it('offers to keep, detach, resize and choose the idle time of what is held', () => {
  expect(names(entries(anAttachedKernel()))).toEqual([
    'keep',
    'detach',
    'Resize',
    'Give Back When Idle',
    '-',
    'reset',
    '-',
    'open-sidebar'
  ]);
});

it('does not offer to keep what is asked back for others', () => {
  const notice = {
    reason: 'reclaim',
    seconds_left: 30,
    explanation: '',
    said: words(''),
    returns: false
  };
  expect(names(entries(aWarnedKernel(30, { notice })))[0]).toBe('detach');
});

it('offers other sizes than the present one', () => {
  const shares = submenu(entries(anAttachedKernel()), 'Resize').map(entry =>
    typeof entry === 'object' && 'args' in entry ? entry.args.share : null
  );
  expect(shares).toEqual(['0.1', '0.25', '0.5', '1']);
});

it('offers idle times that the administrator allows', () => {
  const minutes = (defaults: GpuPool.IDefaults) =>
    submenu(
      entries(anAttachedKernel(), { defaults }),
      'Give Back When Idle'
    ).map(entry =>
      typeof entry === 'object' && 'args' in entry ? entry.args.minutes : ''
    );
  expect(minutes(someDefaults({ idle_minutes_most: 30 }))).toEqual([
    null,
    5,
    10,
    30
  ]);
  expect(
    minutes(someDefaults({ idle_minutes_most: 10, never_allowed: true }))
  ).toEqual([null, 5, 10, 0]);
});

it('offers the projects where there is a choice', () => {
  const project = (path: string) => ({
    path,
    deserved: 1000,
    limit: null,
    held: 0,
    free: null
  });
  const one = someDefaults({ projects: [project('a')] });
  expect(names(entries(aKernel(), { defaults: one }))).not.toContain(
    'Attach for a Project'
  );
  const two = someDefaults({ projects: [project('a'), project('b')] });
  expect(
    submenu(entries(aKernel(), { defaults: two }), 'Attach for a Project')
  ).toEqual([
    {
      command: CommandIDs.attach,
      args: { kernelId: 'k1', share: '0.2', project: 'a' }
    },
    {
      command: CommandIDs.attach,
      args: { kernelId: 'k1', share: '0.2', project: 'b' }
    }
  ]);
});

it('leads to the dashboard where there is one', () => {
  expect(names(entries(undefined, { dashboard: true })).slice(-2)).toEqual([
    'open-sidebar',
    'open-dashboard'
  ]);
});

it('offers to leave the queue', () => {
  expect(names(entries(aKernel({ state: 'queued' })))).toEqual([
    'cancel-queue',
    '-',
    'open-sidebar'
  ]);
});
