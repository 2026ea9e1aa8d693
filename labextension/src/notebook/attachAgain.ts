import type { TranslationBundle } from '@jupyterlab/translation';
import type { GpuPool } from '../api/types';
import type { INotebookTerms } from '../commands/notebooks';
import { holds } from '../figures/session';
import { formatMilli } from '../figures/share';
import type { IGpuPool } from '../model/tokens';
import { writtenTerms } from './notebookTerms';

/** How a wait for a share ended. */
export type Outcome = 'attached' | 'refused' | 'gone';

/**
 * Which kernels a person attached by hand, and asking for the same after a
 * restart. A restart ends the session, and the kernel keeps its id.
 */
export class AttachAgain {
  constructor(
    private readonly _model: IGpuPool,
    private readonly _notebooks: INotebookTerms | null
  ) {
    _model.changed.connect(this._onChange, this);
  }

  /**
   * What to ask for after a restart; null: nothing. To be called before it.
   *
   * `cellsFollow`: all cells are run then, so that a notebook which was
   * attached by hand at another time needs what it had, unless a person has
   * detached it since.
   */
  termsOf(
    kernelId: string,
    cellsFollow: boolean
  ): GpuPool.IAttachOptions | null {
    const kernel = this._model.kernel(kernelId);
    if (!kernel || kernel.by === 'magic' || kernel.by === 'auto') {
      return null;
    }
    const noted = this._notebooks?.of(kernelId) ?? null;
    if (holds(kernel) && kernel.share) {
      // What the notebook notes is what was attached with the button.
      const byLine = kernel.by === 'attach';
      return (byLine ? null : noted) ?? heldTerms(kernel, kernel.share);
    }
    return cellsFollow && !this._detached.has(kernelId) ? noted : null;
  }

  /**
   * Asks, and waits until the kernel is attached.
   * @throws GpuPoolError when the pool refuses at once.
   */
  async attach(
    kernelId: string,
    terms: GpuPool.IAttachOptions
  ): Promise<Outcome> {
    const following = this._model.follow(kernelId);
    try {
      await this._model.attach(kernelId, writtenTerms(terms));
      return await this._settled(kernelId);
    } finally {
      following.dispose();
    }
  }

  private _settled(kernelId: string): Promise<Outcome> {
    return new Promise(resolve => {
      const look = () => {
        const kernel = this._model.kernel(kernelId);
        if (kernel?.state === 'queued') {
          return;
        }
        this._model.changed.disconnect(look);
        resolve(!kernel ? 'gone' : holds(kernel) ? 'attached' : 'refused');
      };
      this._model.changed.connect(look);
      look();
    });
  }

  private _onChange(): void {
    for (const kernel of this._model.state.kernels) {
      if (holds(kernel) || kernel.state === 'queued') {
        this._detached.delete(kernel.kernel_id);
      } else if (kernel.released?.reason === 'release') {
        this._detached.add(kernel.kernel_id);
      }
    }
  }

  /** Kernels whose GPU a person gave back. */
  private readonly _detached = new Set<string>();
}

/** What a kernel holds, as a request for the same. */
export function heldTerms(
  kernel: GpuPool.IKernel,
  share: GpuPool.IShare
): GpuPool.IAttachOptions {
  return {
    share: formatMilli(share.milli),
    ...(share.count > 1 ? { count: share.count } : {}),
    ...(kernel.project ? { project: kernel.project } : {}),
    ...(kernel.memory?.strict ? { strict: true } : {})
  };
}

/** `0.2 GPU`, `2 × 0.2 GPU of research/vision`. */
export function termsText(
  terms: GpuPool.IAttachOptions,
  trans: TranslationBundle
): string {
  const count = terms.count ?? 1;
  const amount = count > 1 ? `${count} × ${terms.share}` : terms.share;
  return terms.project
    ? trans.__('%1 GPU for %2', amount, terms.project)
    : trans.__('%1 GPU', amount);
}
