import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { GpuPool } from '../api/types';
import { parseShare } from '../figures/share';

/** What a person may set; `schema/plugin.json` says what each means. */
export interface IPreferences {
  defaultShare: string;
  /** Empty: the server's. */
  defaultProject: string;
  /** Minutes that Attach chooses for a kernel; 0: the server's. */
  idleMinutes: number;
  /** How long before the release a notification shows; 0: the server's. */
  warnSeconds: number;
  attachOnRestart: boolean;
  notifyIdle: boolean;
  notifyReleased: boolean;
  pollSeconds: number;
  showStatus: boolean;
  /** Whether the sidebar still says what it is for. */
  introduction: boolean;
}

/** As the schema announces them; an empty share is the server's. */
export const DEFAULT_PREFERENCES: IPreferences = Object.freeze({
  defaultShare: '',
  defaultProject: '',
  idleMinutes: 0,
  warnSeconds: 0,
  attachOnRestart: true,
  notifyIdle: true,
  notifyReleased: true,
  pollSeconds: 2,
  showStatus: true,
  introduction: true
});

/** While the server has not told its own. */
const FALLBACK_SHARE = '0.2';

/** Reads settings; a value of the wrong kind counts as not set. */
export function readPreferences(
  composite: ReadonlyPartialJSONObject,
  defaults: GpuPool.IDefaults | null = null
): IPreferences {
  const flag = (
    key:
      | 'notifyIdle'
      | 'notifyReleased'
      | 'showStatus'
      | 'attachOnRestart'
      | 'introduction'
  ) => {
    const value = composite[key];
    return typeof value === 'boolean' ? value : DEFAULT_PREFERENCES[key];
  };
  const number = (
    key: 'pollSeconds' | 'idleMinutes' | 'warnSeconds',
    least: number,
    most: number
  ) => {
    const value = composite[key];
    return typeof value === 'number' && Number.isFinite(value)
      ? Math.min(most, Math.max(least, value))
      : DEFAULT_PREFERENCES[key];
  };
  const { defaultShare, defaultProject } = composite;
  return {
    defaultShare:
      typeof defaultShare === 'string' && parseShare(defaultShare).ok
        ? defaultShare
        : (defaults?.share ?? FALLBACK_SHARE),
    defaultProject:
      typeof defaultProject === 'string'
        ? defaultProject.trim()
        : DEFAULT_PREFERENCES.defaultProject,
    idleMinutes: number('idleMinutes', 0, 31 * 24 * 60),
    warnSeconds: number('warnSeconds', 0, 3600),
    attachOnRestart: flag('attachOnRestart'),
    notifyIdle: flag('notifyIdle'),
    notifyReleased: flag('notifyReleased'),
    showStatus: flag('showStatus'),
    introduction: flag('introduction'),
    pollSeconds: number('pollSeconds', 1, 60)
  };
}
