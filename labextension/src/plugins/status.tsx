import {
  ILabShell,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IStatusBar, TextItem } from '@jupyterlab/statusbar';
import { ITranslator, type TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import { Signal, type ISignal } from '@lumino/signaling';
import { CommandIDs } from '../commands/ids';
import { currentKernelId } from '../commands/kernelActions';
import { hasFailed, holds } from '../figures/session';
import { formatRoom } from '../figures/share';
import { mayStart } from '../model/mayStart';
import { IGpuPool, NAMESPACE } from '../model/tokens';
import { formatCountdown } from '../text/format';
import { sessionNotes, shareText } from '../text/words';
import { h } from '../ui/jsx';
import { ourWords } from './translation';

export const statusPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:status`,
  description: 'Shows the share of the current kernel in the status bar.',
  autoStart: true,
  requires: [IGpuPool],
  optional: [IStatusBar, ITranslator, ILabShell],
  activate: (
    app: JupyterFrontEnd,
    model: IGpuPool,
    statusBar: IStatusBar | null,
    translator: ITranslator | null,
    labShell: ILabShell | null
  ): void => {
    if (!statusBar) {
      // Notebook 7 has none.
      return;
    }
    const trans = ourWords(translator);
    const item = new GpuStatus(app, model, trans);
    labShell?.currentChanged.connect(item.update, item);
    statusBar.registerStatusItem(statusPlugin.id, {
      item,
      align: 'left',
      rank: 5,
      isActive: () => item.active,
      activeStateChanged: item.activeChanged
    });
  }
};

/** `GPU 0.2` for the current kernel, else what the pool has left. */
class GpuStatus extends ReactWidget {
  constructor(
    private readonly _app: JupyterFrontEnd,
    private readonly _model: IGpuPool,
    private readonly _trans: TranslationBundle
  ) {
    super();
    this.addClass('jp-mod-highlighted');
    _model.changed.connect(this._onChange, this);
    _model.preferencesChanged.connect(this._onChange, this);
  }

  get active(): boolean {
    // A server without the extension should cost no room in the bar.
    return (
      this._model.preferences.showStatus &&
      this._model.state.ready &&
      this._model.state.problem?.kind !== 'missing'
    );
  }

  get activeChanged(): ISignal<this, void> {
    return this._activeChanged;
  }

  override dispose(): void {
    if (this.isDisposed) {
      return;
    }
    Signal.clearData(this);
    super.dispose();
  }

  protected override render(): JSX.Element {
    const open = () => void this._app.commands.execute(CommandIDs.openSidebar);
    return (
      <UseSignal signal={this._model.changed}>
        {() => (
          <UseSignal signal={this._model.ticked}>
            {() => (
              <TextItem
                source={this._text()}
                title={this._title()}
                role="button"
                tabIndex={0}
                onClick={open}
                onKeyDown={event => {
                  if (event.key === 'Enter' || event.key === ' ') {
                    event.preventDefault();
                    open();
                  }
                }}
              />
            )}
          </UseSignal>
        )}
      </UseSignal>
    );
  }

  /** What a click does, and what is known of the kernel's session. */
  private _title(): string {
    const kernel = this._model.kernel(currentKernelId(this._app.shell));
    return [
      this._trans.__('Open the GPU pool'),
      ...sessionNotes(kernel, this._trans)
    ].join('\n');
  }

  private _text(): string {
    const trans = this._trans;
    const { pool, problem } = this._model.state;
    const kernel = this._model.kernel(currentKernelId(this._app.shell));
    const left = kernel ? this._model.countdown(kernel.kernel_id) : null;
    if (left !== null) {
      return kernel?.notice
        ? trans.__('GPU asked back: %1', formatCountdown(left))
        : trans.__('GPU idle: %1', formatCountdown(left));
    }
    if (hasFailed(kernel)) {
      return trans.__('GPU: failed');
    }
    if (kernel?.silent) {
      return trans.__('GPU: waits for the pool');
    }
    if (kernel && holds(kernel) && kernel.share) {
      return trans.__('GPU: %1', shareText(kernel.share));
    }
    if (kernel?.state === 'queued') {
      const place = kernel.queue?.place ?? 0;
      return place > 0
        ? trans.__('GPU: queued, place %1', place)
        : trans.__('GPU: queued');
    }
    if (kernel?.returning) {
      return trans.__('GPU: waits to come back');
    }
    if (problem?.kind === 'setting') {
      // The sidebar offers to start one.
      return mayStart(pool)
        ? trans.__('GPU: no pool')
        : trans.__('GPU pool: wrong setting');
    }
    if (problem || !pool?.ok) {
      return trans.__('GPU pool: no answer');
    }
    if (kernel?.state === 'lost') {
      return trans.__('GPU: lost');
    }
    const total = pool.totals.milli / 1000;
    const free = formatRoom(pool.totals.free_milli);
    return kernel?.state === 'parked'
      ? trans.__('GPU: none, memory kept; %1 of %2 free', free, total)
      : trans._n('%2 of %1 GPU free', '%2 of %1 GPUs free', total, free);
  }

  private _onChange(): void {
    if (this._wasActive !== this.active) {
      this._wasActive = this.active;
      this._activeChanged.emit();
    }
  }

  private readonly _activeChanged = new Signal<this, void>(this);
  private _wasActive = false;
}
