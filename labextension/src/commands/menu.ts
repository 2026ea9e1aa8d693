import type { TranslationBundle } from '@jupyterlab/translation';
import type { ReadonlyJSONObject } from '@lumino/coreutils';
import type { GpuPool } from '../api/types';
import { holds } from '../figures/session';
import { formatMilli } from '../figures/share';
import type { IGpuPool } from '../model/tokens';
import { idleChoices } from '../text/choices';
import { CommandIDs } from './ids';
import { undoable } from './releaseCommands';
import { resettable } from './resetCommand';

/** One line of the menu about a kernel's GPU; everything it does is a command. */
export type MenuEntry =
  | { command: string; args: ReadonlyJSONObject }
  | { submenu: string; entries: readonly MenuEntry[] }
  | 'separator';

/** Shares that are offered beside the default; others are typed. */
const SHARES = ['0.1', '0.25', '0.5', '1'];

/** What can be done now with the GPU of one kernel, most likely first. */
export function menuEntries(
  kernelId: string | null,
  kernel: GpuPool.IKernel | undefined,
  suggested: GpuPool.IAttachOptions | null,
  model: {
    preferences: IGpuPool.IPreferences;
    defaults: GpuPool.IDefaults | null;
  },
  dashboard: boolean,
  trans: TranslationBundle
): MenuEntry[] {
  const about: ReadonlyJSONObject = kernelId === null ? {} : { kernelId };
  const share = suggested?.share ?? model.preferences.defaultShare;
  const entries: MenuEntry[] = [];
  if (kernel && holds(kernel)) {
    // What is asked back for others cannot be kept.
    if (!kernel.notice) {
      entries.push({ command: CommandIDs.keep, args: about });
    }
    entries.push(
      { command: CommandIDs.detach, args: about },
      { submenu: trans.__('Resize'), entries: resizes(kernel, about) },
      {
        submenu: trans.__('Give Back When Idle'),
        entries: [null, ...idleChoices(model.defaults)].map(minutes => ({
          command: CommandIDs.setIdle,
          args: { ...about, minutes }
        }))
      }
    );
  } else if (kernel?.state === 'queued') {
    entries.push({ command: CommandIDs.cancelQueue, args: about });
  } else {
    if (undoable(kernel)) {
      entries.push({ command: CommandIDs.undo, args: about });
    }
    // Without a share: what the notebook was attached with last, with its terms.
    entries.push({ command: CommandIDs.attach, args: about });
    for (const other of SHARES.filter(other => other !== share)) {
      entries.push({
        command: CommandIDs.attach,
        args: { ...about, share: other }
      });
    }
    entries.push({ command: CommandIDs.attachWith, args: about });
    const projects = model.defaults?.projects ?? [];
    if (projects.length > 1) {
      entries.push({
        submenu: trans.__('Attach for a Project'),
        entries: projects.map(({ path }) => ({
          command: CommandIDs.attach,
          args: { ...about, share, project: path }
        }))
      });
    }
  }
  if (resettable(kernel)) {
    entries.push('separator', { command: CommandIDs.reset, args: about });
  }
  entries.push('separator', { command: CommandIDs.openSidebar, args: {} });
  if (dashboard) {
    entries.push({ command: CommandIDs.openDashboard, args: {} });
  }
  return entries;
}

function resizes(
  kernel: GpuPool.IKernel,
  about: ReadonlyJSONObject
): MenuEntry[] {
  const now = formatMilli(kernel.share?.milli ?? 0);
  return ['0.1', '0.2', '0.25', '0.5', '1']
    .filter(share => share !== now)
    .map(share => ({ command: CommandIDs.resize, args: { ...about, share } }));
}
