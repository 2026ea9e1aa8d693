import { Notification } from '@jupyterlab/apputils';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { GpuPool } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { notificationAction } from '../commands/notificationAction';
import { holds } from '../figures/session';
import type { IGpuPool } from '../model/tokens';
import { shareText } from '../text/words';

/** A kernel that is shut down with its notebook has gone by then, ms. */
const PAUSE_MS = 1500;
const SHOWN_MS = 15_000;

/** Kernels outlive their notebooks; a GPU that nobody sees any more is easily forgotten. */
export class ClosedNotebooks {
  constructor(
    private readonly _model: IGpuPool,
    private readonly _commands: CommandRegistry,
    private readonly _trans: TranslationBundle,
    private readonly _notify: (
      ...said: Parameters<typeof Notification.info>
    ) => unknown = (...said) => Notification.info(...said)
  ) {}

  follow(panel: Pick<NotebookPanel, 'sessionContext' | 'disposed'>): void {
    const { sessionContext } = panel;
    this._open.add(sessionContext);
    let kernelId = sessionContext.session?.kernel?.id ?? null;
    sessionContext.kernelChanged.connect((_, change) => {
      // Closing takes the kernel away first; which one it was is what counts.
      kernelId = change.newValue?.id ?? kernelId;
    });
    panel.disposed.connect(() => {
      this._open.delete(sessionContext);
      setTimeout(() => void this._look(kernelId), PAUSE_MS);
    });
  }

  private async _look(kernelId: string | null): Promise<void> {
    if (this._model.isDisposed || !holds(this._model.kernel(kernelId))) {
      return;
    }
    for (const { session } of this._open) {
      if (session?.kernel?.id === kernelId) {
        return; // another view of the notebook, or another notebook with its kernel
      }
    }
    await this._model.refresh();
    const kernel = this._model.kernel(kernelId);
    if (kernel === undefined || !holds(kernel)) {
      return;
    }
    this._notify(this._text(kernel), {
      autoClose: SHOWN_MS,
      actions: [
        notificationAction(
          this._commands,
          CommandIDs.detach,
          { kernelId: kernel.kernel_id },
          this._trans.__('Detach'),
          this._trans.__('Detach the GPU from %1', kernel.label)
        )
      ]
    });
  }

  private readonly _open = new Set<NotebookPanel['sessionContext']>();

  private _text(kernel: GpuPool.IKernel): string {
    const share = kernel.share ? shareText(kernel.share) : '';
    const { idle } = kernel;
    if (kernel.busy || !idle || idle.release_at === null) {
      return this._trans.__('%1 still holds %2 GPU.', kernel.label, share);
    }
    const left = Math.max(0, idle.release_at - idle.seconds);
    const until = new Date(Date.now() + 1000 * left);
    return this._trans.__(
      '%1 still holds %2 GPU. If nothing uses it, it goes back at %3.',
      kernel.label,
      share,
      until.toLocaleTimeString(undefined, {
        hour: 'numeric',
        minute: '2-digit'
      })
    );
  }
}
