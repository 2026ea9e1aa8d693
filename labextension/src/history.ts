import type { GpuPool } from './tokens';
import { holds } from './reduce';

/**
 * The last utilization samples of each kernel, one per answer of the server.
 * Kept here and not on the server: a sparkline shows the time one has looked.
 */
export class UsageHistory {
  constructor(private readonly _length = 60) {}

  /** Takes one sample from each kernel that holds a share; drops the rest. */
  record(kernels: readonly GpuPool.IKernel[]): void {
    const next = new Map<string, number[]>();
    for (const kernel of kernels) {
      const past = this._samples.get(kernel.kernel_id) ?? [];
      if (holds(kernel) && kernel.usage) {
        const value = Math.min(1, Math.max(0, kernel.usage.utilization));
        next.set(kernel.kernel_id, [...past, value].slice(-this._length));
      } else if (kernel.state === 'parked' && past.length > 0) {
        next.set(kernel.kernel_id, [...past, 0].slice(-this._length));
      }
    }
    this._samples = next;
  }

  get(kernelId: string): readonly number[] {
    return this._samples.get(kernelId) ?? [];
  }

  private _samples = new Map<string, number[]>();
}
