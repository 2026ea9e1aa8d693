import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import {
  IRunningSessionManagers,
  type IRunningSessions
} from '@jupyterlab/running';
import { ITranslator, type TranslationBundle } from '@jupyterlab/translation';
import { closeIcon } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import type { ISignal } from '@lumino/signaling';
import type { GpuPool } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { openDocument } from '../commands/openDocument';
import { holders } from '../commands/releaseCommands';
import { holds } from '../figures/session';
import { IGpuPool, NAMESPACE } from '../model/tokens';
import { shareSentence, stateWord } from '../text/words';
import { gpuIcon } from '../ui/icons';
import { ourWords } from './translation';

export const runningPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:running`,
  description: 'Lists held GPU shares among the running sessions.',
  autoStart: true,
  requires: [IGpuPool],
  optional: [IRunningSessionManagers, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    model: IGpuPool,
    managers: IRunningSessionManagers | null,
    translator: ITranslator | null
  ): void => {
    if (!managers) {
      // Notebook 7 shows running sessions on another page.
      return;
    }
    const trans = ourWords(translator);
    managers.add(new GpuRunningManager(model, app.commands, trans));
  }
};

/** Each kernel that holds or waits for a share is one running item. */
export class GpuRunningManager implements IRunningSessions.IManager {
  constructor(
    private readonly _model: IGpuPool,
    private readonly _commands: CommandRegistry,
    private readonly _trans: TranslationBundle
  ) {
    this.name = _trans.__('GPU Shares');
    this.shutdownLabel = _trans.__('Release');
    this.shutdownAllLabel = _trans.__('Release All');
    this.shutdownAllConfirmationText = _trans.__(
      'Give back all GPU shares of your kernels? GPU calls of cells that run will fail; kernels, variables and what is in GPU memory are kept.'
    );
  }

  readonly name: string;
  readonly shutdownLabel: string;
  readonly shutdownAllLabel: string;
  readonly shutdownAllConfirmationText: string;
  readonly shutdownItemIcon = closeIcon;

  get runningChanged(): ISignal<unknown, unknown> {
    return this._model.changed;
  }

  refreshRunning(): void {
    void this._model.refresh();
  }

  running(): IRunningSessions.IRunningItem[] {
    return holders(this._model.state.kernels).map(kernel => ({
      icon: () => gpuIcon,
      label: () => kernel.label,
      labelTitle: () => kernel.path ?? kernel.kernel_id,
      detail: () => this._detail(kernel),
      open: () => this._open(kernel),
      shutdown: () => this._release(kernel)
    }));
  }

  shutdownAll(): void {
    // The panel has asked already.
    void this._commands.execute(CommandIDs.releaseAll, { confirmed: true });
  }

  private _release(kernel: GpuPool.IKernel): void {
    const command = holds(kernel) ? CommandIDs.detach : CommandIDs.cancelQueue;
    void this._commands.execute(command, { kernelId: kernel.kernel_id });
  }

  private _open(kernel: GpuPool.IKernel): void {
    void (kernel.path
      ? openDocument(this._commands, kernel.path, this._trans)
      : this._commands.execute(CommandIDs.openSidebar));
  }

  private _detail(kernel: GpuPool.IKernel): string {
    return kernel.share
      ? shareSentence(kernel.share, this._trans)
      : stateWord(kernel.state, this._trans);
  }
}
