import type { GpuPool } from '../api/types';
import { reachable } from './room';

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
