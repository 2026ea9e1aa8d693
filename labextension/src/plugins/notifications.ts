import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator, type TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { REASONS, type Reason } from '../api/reasons';
import type { GpuPool } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { notificationAction } from '../commands/notificationAction';
import { undoable } from '../commands/releaseCommands';
import type { INotebookTerms } from '../commands/notebooks';
import { holds } from '../figures/session';
import { isAmount } from '../figures/share';
import { IGpuPool, NAMESPACE } from '../model/tokens';
import { heldTerms } from '../notebook/attachAgain';
import { NotebookTerms } from '../notebook/notebookTerms';
import { forWhom, reasonSentence } from '../text/words';
import { ourWords } from './translation';

/** A notification is read aloud at each change, so it changes rarely. */
const STEP_SECONDS = 5;

/** Reasons that a person at this kernel asked for; all others they want to hear about. */
const ASKED: ReadonlySet<string> = new Set<Reason>([
  'exit',
  'release',
  'reset'
]);

function isUnasked(reason: string | null): boolean {
  return reason !== null && REASONS.has(reason) && !ASKED.has(reason);
}

/** Why a request that waited got nothing; what ends a share has other ids. */
function isRefusal(reason: string | null): boolean {
  return reason !== null && !REASONS.has(reason);
}

export const notificationsPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:notifications`,
  description: 'Warns before an idle GPU is given back, and says when it was.',
  autoStart: true,
  requires: [IGpuPool],
  optional: [INotebookTracker, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    model: IGpuPool,
    tracker: INotebookTracker | null,
    translator: ITranslator | null
  ): void => {
    const trans = ourWords(translator);
    const notebooks = tracker ? new NotebookTerms(tracker) : null;
    new GpuNotifications(model, app.commands, trans, notebooks);
  }
};

/** Turns transitions of sessions into notifications. */
export class GpuNotifications {
  constructor(
    private readonly _model: IGpuPool,
    private readonly _commands: CommandRegistry,
    private readonly _trans: TranslationBundle,
    private readonly _notebooks: INotebookTerms | null = null,
    private readonly _manager: Pick<
      typeof Notification.manager,
      'notify' | 'update' | 'dismiss'
    > = Notification.manager
  ) {
    _model.transitioned.connect(this._onTransition, this);
    _model.ticked.connect(this._onTick, this);
    _model.changed.connect(this._onChange, this);
  }

  private _onTransition(_: IGpuPool, change: IGpuPool.ITransition): void {
    const { kernel, from } = change;
    if (kernel.notice) {
      this._tellNotice(kernel);
      return;
    }
    if (kernel.state === 'warned') {
      this._warnInTime(kernel);
      return;
    }
    this._dismiss(kernel.kernel_id);
    this._dismissReleased(kernel);
    if (kernel.returning) {
      this._tellReturning(kernel);
      return;
    }
    if (from === null || holds(kernel) || kernel.state === 'queued') {
      return;
    }
    if (from === 'queued' && isRefusal(kernel.reason)) {
      if (!change.ofCell && !this._model.isFollowed(kernel.kernel_id)) {
        this._tellRefused(change);
      }
    } else if (
      isUnasked(kernel.reason) &&
      this._model.preferences.notifyReleased
    ) {
      this._tellReleased(change);
    }
  }

  /** Not before the time that a person has set; each tick looks again. */
  private _warnInTime(kernel: GpuPool.IKernel): void {
    const { notifyIdle, warnSeconds } = this._model.preferences;
    const left = this._model.countdown(kernel.kernel_id);
    if (
      notifyIdle &&
      left !== null &&
      (warnSeconds === 0 || left <= warnSeconds)
    ) {
      this._warn(kernel);
    }
  }

  private _warn(kernel: GpuPool.IKernel): void {
    const { label } = kernel;
    const trans = this._trans;
    this._showWarning(kernel, 'warning', this._warning(kernel), [
      {
        ...this._action(
          kernel,
          CommandIDs.keep,
          trans.__('Keep'),
          trans.__('Keep the GPU of %1', label)
        ),
        displayType: 'accent'
      },
      this._giveBack(kernel)
    ]);
  }

  /** Said whatever the preferences say of idleness: another one asks. */
  private _tellNotice(kernel: GpuPool.IKernel): void {
    this._showWarning(kernel, 'warning', this._warning(kernel), [
      this._giveBack(kernel)
    ]);
  }

  /** Dismissed by the next transition: it has come again, or nobody waits. */
  private _tellReturning(kernel: GpuPool.IKernel): void {
    const trans = this._trans;
    const { label } = kernel;
    const text = trans.__(
      '%1: %2 It waits for it to come again; what is in GPU memory is kept.',
      label,
      reasonSentence(kernel.reason ?? 'reclaim')
    );
    this._showWarning(kernel, 'info', text, [
      this._action(
        kernel,
        CommandIDs.cancelQueue,
        trans.__('Cancel'),
        trans.__('Do not wait for the GPU of %1', label)
      )
    ]);
  }

  private _tellReleased(change: IGpuPool.ITransition): void {
    const { kernel } = change;
    const trans = this._trans;
    const lost = kernel.state === 'lost' || kernel.reason === 'lost';
    const why = reasonSentence(kernel.reason ?? 'release');
    // The server's own sentence has numbers that the reason has not.
    const said = kernel.released?.message ?? kernel.message ?? why;
    const { label } = kernel;
    const caption = trans.__('Attach the same GPU share to %1', label);
    const undo = this._action(
      kernel,
      CommandIDs.undo,
      trans.__('Undo'),
      caption
    );
    const attach = this._action(
      kernel,
      CommandIDs.attach,
      trans.__('Attach again'),
      caption,
      this._termsOf(change)
    );
    // Pressed late, it asks anew.
    const now = () =>
      undoable(this._model.kernel(kernel.kernel_id)) ? undo : attach;
    this._showRelease(kernel, lost ? 'error' : 'info', `${label}: ${said}`, {
      ...now(),
      callback: event => now().callback(event)
    });
  }

  /**
   * What was held, as a request for the same: as the notebook notes it, which
   * has all terms of it, if it is that. Looked up at once: by the time the
   * button is pressed the notebook may be closed.
   */
  private _termsOf(change: IGpuPool.ITransition): ReadonlyPartialJSONObject {
    const { kernel, share, by, asked } = change;
    // The note is of the button; a cell or a line says itself what it wants.
    const noted =
      by === null || by === 'sidebar'
        ? (this._notebooks?.of(kernel.kernel_id) ?? null)
        : null;
    const project = kernel.project || undefined;
    if (
      noted !== null &&
      (share === null ||
        (isAmount(noted.share, share) &&
          (noted.count ?? 1) === share.count &&
          (noted.project ?? project) === (project ?? noted.project)))
    ) {
      // A note may leave the project to the server.
      return { ...noted, project: noted.project ?? project };
    }
    return { ...(share ? heldTerms(kernel, share) : asked) };
  }

  /** Whoever has attached with a button looks at something else by now. */
  private _tellRefused({ kernel, asked }: IGpuPool.ITransition): void {
    const trans = this._trans;
    const { label } = kernel;
    const why = kernel.message ?? reasonSentence(kernel.reason ?? '');
    this._showRelease(
      kernel,
      'error',
      trans.__('%1 got no GPU: %2', label, why),
      this._action(
        kernel,
        CommandIDs.attach,
        trans.__('Try again'),
        undefined,
        { ...asked }
      ),
      true
    );
  }

  private _giveBack(kernel: GpuPool.IKernel): Notification.IAction {
    const label = this._trans.__('Give back now');
    return this._action(kernel, CommandIDs.detach, label);
  }

  private _action(
    kernel: GpuPool.IKernel,
    command: string,
    label: string,
    caption?: string,
    terms: ReadonlyPartialJSONObject = {}
  ): Notification.IAction {
    const args = { kernelId: kernel.kernel_id, ...terms };
    return notificationAction(this._commands, command, args, label, caption);
  }

  /** About something that goes on; in the place of what was said of the kernel before. */
  private _showWarning(
    kernel: GpuPool.IKernel,
    type: Notification.TypeOptions,
    text: string,
    actions: Notification.IAction[]
  ): void {
    this._dismiss(kernel.kernel_id);
    const id = this._manager.notify(text, type, { autoClose: false, actions });
    this._warnings.set(kernel.kernel_id, { id, text });
  }

  /** That the kernel has no GPU now. */
  private _showRelease(
    kernel: GpuPool.IKernel,
    type: Notification.TypeOptions,
    text: string,
    action: Notification.IAction,
    refused = false
  ): void {
    const id = this._manager.notify(text, type, {
      autoClose: false,
      actions: [action]
    });
    this._releases.set(kernel.kernel_id, { id, text, refused });
  }

  /** An offer to attach again ends when the kernel attaches, asks, or has lost what was kept. */
  private _dismissReleased(kernel: GpuPool.IKernel): void {
    const shown = this._releases.get(kernel.kernel_id);
    if (shown !== undefined) {
      this._releases.delete(kernel.kernel_id);
      this._manager.dismiss(shown.id);
    }
  }

  private _onTick(): void {
    for (const kernel of this._model.state.kernels) {
      if (
        kernel.state === 'warned' &&
        !kernel.notice &&
        !this._warnings.has(kernel.kernel_id) &&
        this._model.preferences.warnSeconds > 0
      ) {
        this._warnInTime(kernel);
      }
    }
    for (const [kernelId, shown] of this._warnings) {
      const kernel = this._model.kernel(kernelId);
      // Whoever has just used it is warned for a moment more, and nothing counts down.
      if (
        kernel?.state !== 'warned' ||
        this._model.countdown(kernelId) === null
      ) {
        continue;
      }
      const text = this._warning(kernel);
      if (text !== shown.text) {
        this._warnings.set(kernelId, { id: shown.id, text });
        this._manager.update({ id: shown.id, message: text });
      }
    }
  }

  /** A kernel that was shut down leaves the list without a transition. */
  private _onChange(): void {
    for (const kernelId of [...this._warnings.keys()]) {
      if (!this._model.kernel(kernelId)) {
        this._dismiss(kernelId);
      }
    }
    // A share that was draining is free at last, memory has moved.
    for (const [kernelId, shown] of this._releases) {
      const kernel = this._model.kernel(kernelId);
      if (!kernel) {
        this._releases.delete(kernelId);
        this._manager.dismiss(shown.id);
        continue;
      }
      if (shown.refused) {
        continue; // what is said of an earlier release is older
      }
      const said = kernel.released?.message;
      const text = `${kernel.label}: ${said}`;
      if (said && text !== shown.text && kernel.released?.draining !== true) {
        this._releases.set(kernelId, { ...shown, text });
        this._manager.update({ id: shown.id, message: text });
      }
    }
  }

  private _warning(kernel: GpuPool.IKernel): string {
    const left = this._model.countdown(kernel.kernel_id) ?? 0;
    const seconds = Math.ceil(left / STEP_SECONDS) * STEP_SECONDS;
    if (kernel.notice) {
      return this._trans.__(
        // The end of a long message is not shown.
        'The GPU of %1 is asked back in %2 s; what is in GPU memory is kept. Because: %3',
        kernel.label,
        seconds,
        forWhom(kernel)
      );
    }
    return this._trans.__(
      '%1 does not use its GPU and gives it back in %2 s.',
      kernel.label,
      seconds
    );
  }

  private _dismiss(kernelId: string): void {
    const shown = this._warnings.get(kernelId);
    if (shown) {
      this._warnings.delete(kernelId);
      this._manager.dismiss(shown.id);
    }
  }

  /** What says that a GPU was given back, by kernel. */
  private readonly _releases = new Map<
    string,
    { id: string; text: string; refused: boolean }
  >();
  private readonly _warnings = new Map<string, { id: string; text: string }>();
}
