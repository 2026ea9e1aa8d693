import type { GpuPool } from '../api/types';

/** Whether a page may start a pool: none is configured, and none answers. */
export function mayStart(
  pool: GpuPool.IPool | null | undefined
): pool is GpuPool.IPool {
  return pool?.startable === 'lends' || pool?.startable === 'borrows';
}
