import type { TranslationBundle } from '@jupyterlab/translation';
import type { GpuPool } from '../api/types';
import { hasFailed, holds } from '../figures/session';
import { formatBytes, formatSpan } from './format';

/** What runs for so long is named, seconds. */
const LONG_SECONDS = 2;

/** A part of a kernel's row that a Reset or another share may help against. */
export interface IWorkNote {
  kind: 'failed' | 'draining' | 'stopped' | 'memory';
  text: string;
}

/** What has run for long under the kernel's lease: `forever`, 14; or null. */
export function longWork(
  kernel: GpuPool.ISession | undefined,
  trans: TranslationBundle
): { name: string; seconds: number } | null {
  const usage = kernel?.usage;
  const seconds = usage?.work_seconds ?? 0;
  return holds(kernel) && usage?.work === 'running' && seconds >= LONG_SECONDS
    ? { name: workName(usage, trans), seconds }
    : null;
}

/** Whether a Reset is what may help now. */
export function wantsReset(
  kernel: GpuPool.ISession,
  trans: TranslationBundle
): boolean {
  return (
    longWork(kernel, trans) !== null ||
    workNotes(kernel, trans).some(({ kind }) => kind !== 'memory')
  );
}

/** What else is said of what a session does, or cannot do any more. */
export function workNotes(
  kernel: GpuPool.ISession,
  trans: TranslationBundle
): IWorkNote[] {
  const notes: IWorkNote[] = [];
  const usage = kernel.usage;
  if (!usage) {
    return notes;
  }
  if (hasFailed(kernel)) {
    notes.push({ kind: 'failed', text: failedText(usage, trans) });
  } else if (kernel.session_id && isDraining(kernel)) {
    notes.push({
      kind: 'draining',
      text: trans.__(
        'draining: %1 since %2',
        workName(usage, trans),
        formatSpan(usage.work_seconds ?? 0)
      )
    });
  } else if (kernel.session_id && usage.work === 'stopped') {
    notes.push({
      kind: 'stopped',
      text: trans.__(
        '%1 is stopped; it goes on when a GPU is attached.',
        workName(usage, trans)
      )
    });
  }
  if (usage.out_of_memory) {
    notes.push({
      kind: 'memory',
      text: memoryText(usage.out_of_memory, trans)
    });
  }
  return notes;
}

/** Its lease has ended, and something still runs. */
function isDraining(kernel: GpuPool.ISession): boolean {
  const work = kernel.usage?.work;
  return (
    work === 'draining' ||
    // The last report may be of a moment before the end of the lease.
    (work === 'running' && kernel.released?.draining === true)
  );
}

function workName(usage: GpuPool.IUsage, trans: TranslationBundle): string {
  return usage.kernel || trans.__('work without a name');
}

function failedText(usage: GpuPool.IUsage, trans: TranslationBundle): string {
  const name = usage.failure_name ?? String(usage.failure);
  const kernel = usage.failed_kernel
    ? trans.__('%1 in kernel %2', name, usage.failed_kernel)
    : name;
  return usage.failed_cell
    ? trans.__(
        'The GPU session failed in cell %1: %2. It can do nothing until it is reset.',
        usage.failed_cell,
        kernel
      )
    : trans.__(
        'The GPU session failed: %1. It can do nothing until it is reset.',
        kernel
      );
}

function memoryText(
  refused: GpuPool.IOutOfMemory,
  trans: TranslationBundle
): string {
  return trans.__(
    'out of memory: %1 asked, the share has %2, %3 used',
    formatBytes(refused.asked),
    formatBytes(refused.share),
    formatBytes(refused.used)
  );
}
