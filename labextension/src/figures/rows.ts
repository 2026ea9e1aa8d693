import type { GpuPool } from '../api/types';
import { hasFailed, holds } from './session';

/*
 * Which kernels a person looks for first: the one of the notebook in front,
 * then those that hold a GPU or want something, last those that have none.
 */

/** With fewer kernels than this each shows all that is known of it. */
const FEW_KERNELS = 3;
/** More kernels without a GPU than this are one line together. */
const FEW_WITHOUT = 4;
/** For how long a note about a release stays, as long as its Undo, seconds. */
const NOTE_SECONDS = 120;

export interface IRows {
  /** With all that is known of them; the one in front is the first. */
  whole: readonly GpuPool.IKernel[];
  /** One line each. */
  lines: readonly GpuPool.IKernel[];
  /** One line each, below a heading that folds them away. */
  grouped: readonly GpuPool.IKernel[];
}

/** `wants`: whether something of a kernel has to be seen, beside what it says itself. */
export function rowsOf(
  kernels: readonly GpuPool.IKernel[],
  front: string | null,
  wants: (kernel: GpuPool.IKernel) => boolean
): IRows {
  const isFront = (kernel: GpuPool.IKernel) => kernel.kernel_id === front;
  const few = kernels.length <= FEW_KERNELS;
  const speaks = (kernel: GpuPool.IKernel) =>
    needsAnEye(kernel) || wants(kernel);
  const others = kernels.filter(kernel => !isFront(kernel));
  const whole = others.filter(
    kernel => speaks(kernel) || (few && holds(kernel))
  );
  const rest = others.filter(kernel => !whole.includes(kernel));
  const without = rest.filter(kernel => !holds(kernel));
  const many = without.length > FEW_WITHOUT;
  return {
    whole: [...kernels.filter(isFront), ...whole],
    lines: many ? rest.filter(holds) : [...rest.filter(holds), ...without],
    grouped: many ? without : []
  };
}

/** Whether a kernel waits, is about to lose its GPU, or has lost it in a way that one must know. */
function needsAnEye(kernel: GpuPool.IKernel): boolean {
  return (
    kernel.state === 'queued' ||
    kernel.state === 'warned' ||
    kernel.state === 'lost' ||
    kernel.returning ||
    kernel.silent ||
    kernel.notice !== null ||
    hasFailed(kernel) ||
    Boolean(kernel.usage?.out_of_memory) ||
    noteOf(kernel) !== null
  );
}

/** What is said of the last release: as long as it can be undone, or is not over, or is news. */
export function noteOf(kernel: GpuPool.IKernel): GpuPool.IReleased | null {
  const { released } = kernel;
  if (released === null || holds(kernel) || kernel.state === 'queued') {
    return null;
  }
  // By the server's clock: the browser's may be another. A server that was
  // installed before this page does not say its age.
  const age = released.age_seconds ?? Date.now() / 1000 - released.at;
  const news = Math.abs(age) < NOTE_SECONDS;
  return released.undo_seconds > 0 || released.draining || news
    ? released
    : null;
}
