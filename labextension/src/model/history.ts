import type { GpuPool } from '../api/types';

/** How much of the past the charts show, seconds. */
export const WINDOW_SECONDS = 120;

/**
 * The last samples of each kernel, as the server took them. A page that was
 * just opened asks for all of the window, later ones only for what is new.
 */
export class UsageHistory {
  constructor(private readonly _window = WINDOW_SECONDS) {}

  /** From when samples are missing: a time of the server, or so long ago. */
  get since(): number {
    return this._newest ?? -this._window;
  }

  /** Adds what a poll brought; forgets kernels that are gone. */
  record(kernels: readonly GpuPool.IKernel[]): void {
    const next = new Map<string, readonly GpuPool.IUsageSample[]>();
    for (const { kernel_id, samples = [] } of kernels) {
      const past = this._samples.get(kernel_id) ?? [];
      const last = timeOfLast(past) ?? -Infinity;
      // A refresh may overtake the poll before it and bring the same again.
      const fresh = samples.filter(sample => sample.t > last);
      next.set(kernel_id, fresh.length > 0 ? [...past, ...fresh] : past);
      const newest = timeOfLast(fresh);
      if (newest !== undefined) {
        this._newest = Math.max(this._newest ?? newest, newest);
      }
    }
    this._samples = next;
    this._forget();
  }

  get(kernelId: string): readonly GpuPool.IUsageSample[] {
    return this._samples.get(kernelId) ?? [];
  }

  private _forget(): void {
    const oldest = (this._newest ?? 0) - this._window;
    for (const [id, samples] of this._samples) {
      if (samples.length > 0 && samples[0].t < oldest) {
        this._samples.set(
          id,
          samples.filter(sample => sample.t >= oldest)
        );
      }
    }
  }

  private _samples = new Map<string, readonly GpuPool.IUsageSample[]>();
  private _newest: number | null = null;
}

function timeOfLast(
  samples: readonly GpuPool.IUsageSample[]
): number | undefined {
  return samples[samples.length - 1]?.t;
}
