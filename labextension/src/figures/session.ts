import type { GpuPool } from '../api/types';

/** Sessions that hold a lease. */
const HOLDING: ReadonlySet<GpuPool.State> = new Set(['attached', 'warned']);

/** Whether this kernel holds a share now. */
export function holds(
  kernel: Pick<GpuPool.ISession, 'state'> | undefined
): boolean {
  return kernel !== undefined && HOLDING.has(kernel.state);
}

/** Whether a CUDA error has ended all that the kernel's session can do. */
export function hasFailed(
  kernel: Pick<GpuPool.ISession, 'session_id' | 'usage'> | undefined
): boolean {
  return Boolean(kernel?.session_id && kernel.usage?.failure);
}
