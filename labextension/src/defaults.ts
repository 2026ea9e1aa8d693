import type { TranslationBundle } from '@jupyterlab/translation';
import { formatMilli } from './share';

/** A project that may be asked for; quantities in milli-GPU. */
export interface IProjectChoice {
  path: string;
  /** What it always gets of the present pool. */
  deserved: number;
  /** Null: no limit. */
  limit: number | null;
  held: number;
  /** What is left of the limit; null: no limit. */
  free: number | null;
}

/** Answer of `GET api/defaults`. */
export interface IDefaults {
  share: string;
  /** What a request without a project counts against; empty: name one. */
  project: string;
  projects: readonly IProjectChoice[];
  /** Why `projects` is not known. */
  error: string | null;
  /** Of the queue; negative: without end. */
  wait_seconds: number;
  /** Without use, before the GPU goes back; 0: it never does. */
  idle_minutes: number;
  idle_minutes_most: number;
  never_allowed: boolean;
  warn_seconds: number;
  user: string;
  admin: boolean;
  version: string;
}

/** `research/vision: 0.4 held, 2 deserved, 1.6 left`. */
export function projectText(
  project: IProjectChoice,
  trans: TranslationBundle
): string {
  const held = formatMilli(project.held);
  const deserved = formatMilli(project.deserved);
  return project.free === null
    ? trans.__('%1: %2 held, %3 deserved', project.path, held, deserved)
    : trans.__(
        '%1: %2 held, %3 deserved, %4 left',
        project.path,
        held,
        deserved,
        formatMilli(project.free)
      );
}

/** Minutes that a kernel may choose, shortest first; 0 stands for never. */
export function idleChoices(defaults: IDefaults | null): number[] {
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
