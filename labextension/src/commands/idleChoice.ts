import type { GpuPool } from '../api/types';
import type { IGpuPool } from '../model/tokens';

/**
 * Tells the server how long a kernel that was attached here may be idle, as a
 * person has set it, where nobody has chosen that for the kernel.
 */
export class IdleChoice {
  constructor(private readonly _model: IGpuPool) {
    _model.transitioned.connect(this._onTransition, this);
  }

  /**
   * Called when a request was accepted.
   * @throws GpuPoolError when the administrator does not allow so long.
   */
  async attached(kernelId: string): Promise<void> {
    const kernel = this._model.kernel(kernelId);
    if (kernel?.state === 'queued') {
      // What was chosen for a kernel is told while it holds a share only.
      this._waiting.add(kernelId);
    } else if (kernel) {
      await this._choose(kernel);
    }
  }

  private _onTransition(_: IGpuPool, change: IGpuPool.ITransition): void {
    const { kernel } = change;
    if (kernel.state !== 'queued' && this._waiting.delete(kernel.kernel_id)) {
      // The person who pressed Attach has gone on; the state shows what counts.
      this._choose(kernel).catch(() => undefined);
    }
  }

  private async _choose(kernel: GpuPool.IKernel): Promise<void> {
    const { idleMinutes } = this._model.preferences;
    if (idleMinutes > 0 && kernel.idle && kernel.idle.choice_minutes === null) {
      await this._model.setIdle(kernel.kernel_id, idleMinutes);
    }
  }

  private readonly _waiting = new Set<string>();
}
