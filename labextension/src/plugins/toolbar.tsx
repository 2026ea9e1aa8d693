import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import type { NotebookPanel } from '@jupyterlab/notebook';
import {
  ITranslator,
  nullTranslator,
  type TranslationBundle
} from '@jupyterlab/translation';
import { MenuSvg, ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import type { ReadonlyJSONObject } from '@lumino/coreutils';
import type { CommandRegistry } from '@lumino/commands';
import React from 'react';
import { CommandIDs } from '../commands';
import { formatCountdown } from '../format';
import { gpuIcon } from '../icons';
import { IGpuPool, NAMESPACE, type GpuPool } from '../tokens';
import { sessionNotes, shareText, stateWord } from '../words';

/** Name of the item in the schema of the notebook toolbar. */
const TOOLBAR_ITEM = 'gpupool';

export const toolbarPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:toolbar`,
  description: 'Shows the share of a notebook’s kernel in its toolbar.',
  autoStart: true,
  requires: [IGpuPool],
  optional: [IToolbarWidgetRegistry, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    model: IGpuPool,
    toolbars: IToolbarWidgetRegistry | null,
    translator: ITranslator | null
  ): void => {
    const trans = (translator ?? nullTranslator).load('jupyter_gpupool');
    toolbars?.addFactory<NotebookPanel>(
      'Notebook',
      TOOLBAR_ITEM,
      panel => new GpuToolbarButton(panel, model, app.commands, trans)
    );
  }
};

/** A button with the share; opens a menu of what can be done now. */
export class GpuToolbarButton extends ReactWidget {
  constructor(
    private readonly _panel: Pick<NotebookPanel, 'sessionContext'>,
    private readonly _model: IGpuPool,
    private readonly _commands: CommandRegistry,
    private readonly _trans: TranslationBundle
  ) {
    super();
    this.addClass('jp-GpuPool-toolbarItem');
    this._panel.sessionContext.kernelChanged.connect(this._onKernel, this);
  }

  override dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this._panel.sessionContext.kernelChanged.disconnect(this._onKernel, this);
    this._menu?.dispose();
    super.dispose();
  }

  protected override render(): JSX.Element {
    return (
      <UseSignal signal={this._model.changed}>
        {() => (
          <UseSignal signal={this._model.ticked}>
            {() => this._button()}
          </UseSignal>
        )}
      </UseSignal>
    );
  }

  private _button(): JSX.Element {
    const trans = this._trans;
    const kernel = this._model.kernel(this._kernelId);
    const state = kernel?.state ?? 'none';
    const label = buttonText(kernel, this._model, trans);
    return (
      <button
        type="button"
        className="jp-GpuPool-toolbarButton"
        data-state={state}
        aria-haspopup="menu"
        aria-label={trans.__('GPU of this notebook: %1', spoken(kernel, trans))}
        title={[
          trans.__('GPU of this notebook: %1', spoken(kernel, trans)),
          ...sessionNotes(kernel, trans)
        ].join('\n')}
        onClick={event => this._openMenu(event.currentTarget)}
      >
        <gpuIcon.react tag="span" width="16px" height="16px" />
        <span className="jp-GpuPool-toolbarLabel">{label}</span>
      </button>
    );
  }

  private _openMenu(button: HTMLElement): void {
    const menu = this._menu ?? new MenuSvg({ commands: this._commands });
    this._menu = menu;
    menu.clearItems();
    const kernelId = this._kernelId;
    const kernel = this._model.kernel(kernelId);
    const args: ReadonlyJSONObject = kernelId === null ? {} : { kernelId };
    switch (kernel?.state) {
      case 'attached':
      case 'warned':
        // What is asked back for others cannot be kept.
        if (!kernel.notice) {
          menu.addItem({ command: CommandIDs.keep, args });
        }
        menu.addItem({ command: CommandIDs.detach, args });
        break;
      case 'queued':
        menu.addItem({ command: CommandIDs.cancelQueue, args });
        break;
      default: {
        const shares = [
          this._model.preferences.defaultShare,
          '0.25',
          '0.5',
          '1'
        ];
        for (const share of new Set(shares)) {
          menu.addItem({
            command: CommandIDs.attach,
            args: { ...args, share }
          });
        }
      }
    }
    menu.addItem({ type: 'separator' });
    menu.addItem({ command: CommandIDs.openSidebar });
    const { left, bottom } = button.getBoundingClientRect();
    menu.open(left, bottom);
  }

  private get _kernelId(): string | null {
    return this._panel.sessionContext.session?.kernel?.id ?? null;
  }

  private _onKernel(): void {
    this.update();
  }

  private _menu: MenuSvg | null = null;
}

/** Few characters: the toolbar is narrow. */
export function buttonText(
  kernel: GpuPool.IKernel | undefined,
  model: IGpuPool,
  trans: TranslationBundle
): string {
  switch (kernel?.state) {
    case 'attached':
      return kernel.share ? shareText(kernel.share) : trans.__('attached');
    case 'warned': {
      const left = model.countdown(kernel.kernel_id);
      const word = kernel.notice ? trans.__('asked back') : trans.__('idle');
      return left === null ? word : formatCountdown(left);
    }
    case 'queued':
      return kernel.queue && kernel.queue.place > 0
        ? trans.__('queued %1', kernel.queue.place)
        : trans.__('queued');
    case 'lost':
      return trans.__('lost');
    default:
      return trans.__('GPU');
  }
}

function spoken(
  kernel: GpuPool.IKernel | undefined,
  trans: TranslationBundle
): string {
  const word = stateWord(kernel?.state ?? 'none', trans);
  return kernel?.share ? `${word}, ${shareText(kernel.share)}` : word;
}
