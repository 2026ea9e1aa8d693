import type { GpuPool } from '../api/types';
import { formatMilli } from './share';

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

/** The requests that wait for this device, first come first. */
export function queuedFor(
  device: GpuPool.IDevice,
  queue: readonly GpuPool.IQueueEntry[]
): GpuPool.IQueueEntry[] {
  return queue.filter(entry => entry.wants?.includes(device.id));
}

/** What a request wants of a device, milli-GPU; by memory where it asks so. */
export function wantedMilli(
  entry: GpuPool.IQueueEntry,
  device: GpuPool.IDevice
): number {
  if (entry.milli) {
    return entry.milli;
  }
  return entry.mib && device.usable_mib > 0
    ? Math.min(1000, Math.ceil((1000 * entry.mib) / device.usable_mib))
    : 0;
}

/**
 * The largest share that a kernel could be resized to now, milli-GPU: what it
 * holds and what is free beside it, on each of its devices. Null: not known.
 */
export function resizeLimit(
  kernel: GpuPool.IKernel,
  pool: GpuPool.IPool | null
): number | null {
  const share = kernel.share;
  if (share === null || !pool?.ok) {
    return null;
  }
  const held = kernel.devices?.length
    ? kernel.devices
    : kernel.device === null
      ? []
      : [kernel.device];
  const devices = held.map(id => pool.devices.find(device => device.id === id));
  if (devices.length === 0 || devices.some(device => device === undefined)) {
    return null;
  }
  const limits = devices.map(device => share.milli + reachable(device!));
  return Math.min(1000, ...limits);
}

/**
 * The share, in tenths of a GPU, that what was refused would fit in beside
 * what is used, where `limit` milli-GPU can be had; null: none, or not known.
 */
export function enoughShare(
  kernel: GpuPool.IKernel,
  pool: GpuPool.IPool | null,
  limit: number | null
): string | null {
  const refused = kernel.usage?.out_of_memory;
  const device = pool?.devices.find(
    ({ id }) => id === (kernel.devices?.[refused?.device ?? 0] ?? kernel.device)
  );
  if (!refused || !device || limit === null || device.usable_mib <= 0) {
    return null;
  }
  // What the driver's context takes of the share, the program does not see.
  const reserve = (kernel.share?.mib ?? 0) - refused.share / (1024 * 1024);
  const mib = refused.needed / (1024 * 1024) + Math.max(0, reserve);
  const milli = 100 * Math.ceil((10 * mib) / device.usable_mib);
  return milli <= limit && milli > (kernel.share?.milli ?? 0)
    ? formatMilli(milli)
    : null;
}
