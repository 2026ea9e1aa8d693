import { Notification, type ISessionContext } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { CommandRegistry } from '@lumino/commands';
import type { GpuPool } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { notificationAction } from '../commands/notificationAction';
import type { IGpuPool } from '../model/tokens';
import { termsText, type AttachAgain } from './attachAgain';

/** Commands of JupyterLab that restart a kernel and then run cells. */
const THEN_RUN: ReadonlySet<string> = new Set([
  'notebook:restart-run-all',
  'notebook:restart-and-run-to-selected'
]);

/**
 * Every restart that a person asks for goes through the one `restart` of the
 * session dialogs, and cells run after it has answered true. There is no hook
 * for it, so the method is wrapped: what it answers waits for the GPU.
 */
export class RestartHook {
  constructor(
    private readonly _commands: CommandRegistry,
    private readonly _model: IGpuPool,
    dialogs: ISessionContext.IDialogs,
    private readonly _again: AttachAgain,
    private readonly _trans: TranslationBundle
  ) {
    const restart = dialogs.restart.bind(dialogs);
    dialogs.restart = (context, ...more) =>
      this._restart(context, () => restart(context, ...more));
    _commands.commandExecuted.connect(this._onExecuted, this);
  }

  private async _restart(
    context: ISessionContext,
    restart: () => Promise<boolean>
  ): Promise<boolean> {
    // The command that restarts and runs is announced right after it began.
    this._cellsFollow = false;
    await Promise.resolve();
    const cellsFollow = this._cellsFollow;
    const kernelId = context.session?.kernel?.id ?? null;
    const terms =
      kernelId !== null && this._model.preferences.attachOnRestart
        ? this._again.termsOf(kernelId, cellsFollow)
        : null;
    const restarted = await restart();
    if (!restarted || terms === null || kernelId === null) {
      return restarted;
    }
    // False: the kernel was not restarted as asked for, so no cell is run.
    return (
      (await this._attach(context.name, kernelId, terms, cellsFollow)) ||
      !cellsFollow
    );
  }

  /** Whether the kernel has its GPU; a person sees that it waits, and why not. */
  private async _attach(
    name: string,
    kernelId: string,
    terms: GpuPool.IAttachOptions,
    cellsFollow: boolean
  ): Promise<boolean> {
    const trans = this._trans;
    const asked = termsText(terms, trans);
    const waiting = Notification.emit(
      cellsFollow
        ? trans.__('%1 waits for %2 before its cells run.', name, asked)
        : trans.__('%1 asks for %2 again.', name, asked),
      'in-progress',
      {
        autoClose: false,
        actions: [
          notificationAction(
            this._commands,
            CommandIDs.cancelQueue,
            { kernelId },
            trans.__('Cancel'),
            trans.__('Do not wait for the GPU of %1', name)
          )
        ]
      }
    );
    let problem: string;
    try {
      const outcome = await this._again.attach(kernelId, terms);
      if (outcome === 'attached') {
        Notification.dismiss(waiting);
        return true;
      }
      problem =
        this._model.kernel(kernelId)?.message ??
        trans.__('Nothing is asked for any more.');
    } catch (error) {
      problem = error instanceof Error ? error.message : String(error);
    }
    Notification.dismiss(waiting);
    Notification.error(
      cellsFollow
        ? trans.__('%1: no cell was run, without %2. %3', name, asked, problem)
        : trans.__('%1 is not attached again: %2', name, problem),
      {
        autoClose: false,
        actions: [
          notificationAction(
            this._commands,
            CommandIDs.attach,
            { ...terms, kernelId },
            trans.__('Try again')
          )
        ]
      }
    );
    return false;
  }

  private _onExecuted(
    _: CommandRegistry,
    executed: CommandRegistry.ICommandExecutedArgs
  ): void {
    if (THEN_RUN.has(executed.id)) {
      this._cellsFollow = true;
    }
  }

  private _cellsFollow = false;
}
