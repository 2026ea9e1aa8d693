import type { TranslationBundle } from '@jupyterlab/translation';
import type { GpuPool } from '../api/types';
import { formatRoom, formatShare } from '../figures/share';

/** `research/vision: 0.4 held, 2 deserved, 1.6 left`. */
export function projectText(
  project: GpuPool.IProjectChoice,
  trans: TranslationBundle
): string {
  const held = formatShare(project.held);
  const deserved = formatShare(project.deserved);
  return project.free === null
    ? trans.__('%1: %2 held, %3 deserved', project.path, held, deserved)
    : trans.__(
        '%1: %2 held, %3 deserved, %4 left',
        project.path,
        held,
        deserved,
        formatRoom(project.free)
      );
}

/** Minutes that a kernel may choose, shortest first; 0 stands for never. */
export function idleChoices(defaults: GpuPool.IDefaults | null): number[] {
  const most = defaults?.idle_minutes_most ?? Infinity;
  const minutes = [5, 10, 30, 60, 120, 240].filter(choice => choice <= most);
  return defaults?.never_allowed ? [...minutes, 0] : minutes;
}

/** `5 min`, `2 h`, `never`. */
export function idleText(minutes: number, trans: TranslationBundle): string {
  if (minutes === 0) {
    return trans.__('never');
  }
  const hours = minutes / 60;
  return Number.isInteger(hours)
    ? trans.__('%1 h', hours)
    : trans.__('%1 min', Math.round(minutes * 10) / 10);
}
