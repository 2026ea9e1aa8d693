import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { parseShare } from './share';
import type { GpuPool } from './tokens';

export const DEFAULT_PREFERENCES: GpuPool.IPreferences = Object.freeze({
  defaultShare: '0.2',
  defaultProject: '',
  notifyIdle: true,
  notifyReleased: true,
  pollSeconds: 2,
  showStatus: true
});

/** Reads settings; a value of the wrong kind counts as not set. */
export function readPreferences(
  composite: ReadonlyPartialJSONObject
): GpuPool.IPreferences {
  const flag = (key: 'notifyIdle' | 'notifyReleased' | 'showStatus') => {
    const value = composite[key];
    return typeof value === 'boolean' ? value : DEFAULT_PREFERENCES[key];
  };
  const { defaultShare, defaultProject, pollSeconds } = composite;
  return {
    defaultShare:
      typeof defaultShare === 'string' && parseShare(defaultShare).ok
        ? defaultShare
        : DEFAULT_PREFERENCES.defaultShare,
    defaultProject:
      typeof defaultProject === 'string'
        ? defaultProject.trim()
        : DEFAULT_PREFERENCES.defaultProject,
    notifyIdle: flag('notifyIdle'),
    notifyReleased: flag('notifyReleased'),
    showStatus: flag('showStatus'),
    pollSeconds:
      typeof pollSeconds === 'number' && Number.isFinite(pollSeconds)
        ? Math.min(60, Math.max(1, pollSeconds))
        : DEFAULT_PREFERENCES.pollSeconds
  };
}
