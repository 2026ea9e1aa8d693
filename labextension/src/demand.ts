import type { TranslationBundle } from '@jupyterlab/translation';
import { formatGuess } from './format';
import { formatMilli } from './share';
import type { GpuPool } from './tokens';

/** How much the pool is asked for, coarsely. */
export type DemandLevel =
  'none' | 'quiet' | 'room' | 'busy' | 'full' | 'waiting';

/** How much the pool is asked for, in numbers. Compute in milli-GPU. */
export interface IDemand {
  level: DemandLevel;
  /** Devices that lend. */
  devices: number;
  lent: number;
  free: number;
  /** What one request could have on one device now. */
  largest: number;
  waiting: number;
  /** Of the first in the queue, seconds; null: nobody knows. */
  eta: number | null;
}

/** At most this part of the pool is lent when it is quiet. */
const QUIET = 0.25;
/** Half a device on one device is room, milli-GPU. */
const ROOM = 500;
/** Less than this is no share worth asking for, milli-GPU. */
const LEAST = 50;

/**
 * What can be had on a device now, milli-GPU: of its compute, and no more
 * than its memory allows: a share takes as much of both, memory rounded down
 * to whole MiB.
 */
export function reachable(device: GpuPool.IDevice): number {
  if (!device.healthy) {
    return 0;
  }
  const memory =
    device.usable_mib > 0
      ? Math.ceil((1000 * (device.free_mib + 1)) / device.usable_mib) - 1
      : 1000;
  return Math.max(0, Math.min(device.free_milli, memory));
}

export function demandOf(pool: GpuPool.IPool): IDemand {
  const devices = pool.devices.filter(device => device.healthy);
  const free = devices.reduce((sum, device) => sum + device.free_milli, 0);
  const total = 1000 * devices.length;
  const largest = Math.max(0, ...devices.map(reachable));
  const numbers = {
    devices: devices.length,
    lent: total - free,
    free,
    largest,
    waiting: pool.queue.length,
    eta: pool.queue[0]?.eta_seconds ?? null
  };
  return { ...numbers, level: levelOf(numbers, total) };
}

function levelOf(demand: Omit<IDemand, 'level'>, total: number): DemandLevel {
  if (demand.devices === 0) {
    return 'none';
  }
  if (demand.waiting > 0) {
    return 'waiting';
  }
  if (demand.largest < LEAST) {
    return 'full';
  }
  if (demand.lent <= QUIET * total) {
    return 'quiet';
  }
  return demand.largest >= ROOM ? 'room' : 'busy';
}

/** One word for a pill. */
export function demandWord(demand: IDemand, trans: TranslationBundle): string {
  switch (demand.level) {
    case 'none':
      return trans.__('no GPU');
    case 'quiet':
      return trans.__('quiet');
    case 'room':
      return trans.__('room');
    case 'busy':
      return trans.__('busy');
    case 'full':
      return trans.__('full');
    case 'waiting':
      return trans.__('%1 waiting', demand.waiting);
  }
}

/** The numbers behind the word, as one sentence. */
export function demandSentence(
  demand: IDemand,
  trans: TranslationBundle
): string {
  const largest = formatMilli(demand.largest);
  const free = formatMilli(demand.free);
  switch (demand.level) {
    case 'none':
      return trans.__('No device lends now.');
    case 'full':
      return trans.__(
        '%1 of %2 GPUs lent; a request would wait.',
        formatMilli(demand.lent),
        demand.devices
      );
    case 'waiting':
      return demand.eta === null
        ? trans.__('%1 free in all, up to %2 on one GPU.', free, largest)
        : trans.__(
            '%1 free in all, up to %2 on one GPU; the first waits about %3 more.',
            free,
            largest,
            formatGuess(demand.eta)
          );
    default:
      return trans.__('A request for up to %1 is granted at once.', largest);
  }
}
