import type {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import { ITranslator, type TranslationBundle } from '@jupyterlab/translation';
import { MenuSvg, ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import type { CommandRegistry } from '@lumino/commands';
import type { Menu } from '@lumino/widgets';
import type { GpuPool } from '../api/types';
import { kernelSchema } from '../commands/arguments';
import { CommandIDs } from '../commands/ids';
import { menuEntries, type MenuEntry } from '../commands/menu';
import type { INotebookTerms } from '../commands/notebooks';
import { hasFailed } from '../figures/session';
import { IGpuPool, NAMESPACE } from '../model/tokens';
import { NotebookTerms } from '../notebook/notebookTerms';
import { formatCountdown } from '../text/format';
import { sessionNotes, shareText, shownState, stateWord } from '../text/words';
import { gpuIcon } from '../ui/icons';
import { h } from '../ui/jsx';
import { ourWords } from './translation';

/** Name of the item in the schema of the notebook toolbar. */
const TOOLBAR_ITEM = 'gpupool';

export const toolbarPlugin: JupyterFrontEndPlugin<void> = {
  id: `${NAMESPACE}:toolbar`,
  description:
    'Shows the share of a notebook’s kernel in its toolbar, with a menu.',
  autoStart: true,
  requires: [IGpuPool],
  optional: [IToolbarWidgetRegistry, INotebookTracker, ITranslator],
  activate: (
    app: JupyterFrontEnd,
    model: IGpuPool,
    toolbars: IToolbarWidgetRegistry | null,
    tracker: INotebookTracker | null,
    translator: ITranslator | null
  ): void => {
    const trans = ourWords(translator);
    const { commands, shell } = app;
    const notebooks = tracker ? new NotebookTerms(tracker) : null;
    const buttons = new Map<object, GpuToolbarButton>();
    toolbars?.addFactory<NotebookPanel>('Notebook', TOOLBAR_ITEM, panel => {
      const button = new GpuToolbarButton(
        panel,
        model,
        commands,
        trans,
        notebooks
      );
      buttons.set(panel, button);
      button.disposed.connect(() => buttons.delete(panel));
      return button;
    });
    const current = () => buttons.get(shell.currentWidget ?? {});
    commands.addCommand(CommandIDs.menu, {
      label: trans.__('GPU Menu of This Notebook'),
      caption: trans.__('Open the menu of the GPU button in the toolbar'),
      icon: gpuIcon,
      describedBy: kernelSchema(),
      isEnabled: () => current() !== undefined,
      execute: () => current()?.openMenu(true)
    });
  }
};

/** A button with the share; opens a menu of what can be done now. */
export class GpuToolbarButton extends ReactWidget {
  constructor(
    private readonly _panel: Pick<NotebookPanel, 'sessionContext'>,
    private readonly _model: IGpuPool,
    private readonly _commands: CommandRegistry,
    private readonly _trans: TranslationBundle,
    private readonly _notebooks: INotebookTerms | null = null
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
    this._closeMenu();
    super.dispose();
  }

  /** Opens the menu; from the keyboard its first line is chosen already. */
  openMenu(fromKeyboard: boolean): void {
    this._closeMenu();
    const button = this.node.querySelector('button');
    if (button === null) {
      return;
    }
    const kernelId = this._kernelId;
    const menu = newMenu(this._commands);
    fill(
      menu,
      menuEntries(
        kernelId,
        this._model.kernel(kernelId),
        this._notebooks?.of(kernelId) ?? null,
        this._model,
        this._commands.hasCommand(CommandIDs.openDashboard),
        this._trans
      )
    );
    menu.title.label = this._trans.__('GPU of this notebook');
    menu.contentNode.setAttribute('aria-label', menu.title.label);
    menu.aboutToClose.connect(this._onMenuClosing, this);
    this._menu = menu;
    button.setAttribute('aria-expanded', 'true');
    const focused = document.activeElement;
    this._focusedBefore = focused instanceof HTMLElement ? focused : null;
    const { left, bottom } = button.getBoundingClientRect();
    menu.open(left, bottom);
    if (fromKeyboard) {
      menu.activateNextItem();
    }
    if (this._model.kernel(kernelId) === undefined) {
      this._openAgainWhenKnown(menu, fromKeyboard);
    }
    // Figures of projects are of the moment; they are there at the next opening.
    void this._model.refreshDefaults();
  }

  /** A kernel that has just started is told of with the next poll; until then nothing can be done with it. */
  private _openAgainWhenKnown(menu: MenuSvg, fromKeyboard: boolean): void {
    const { kernelChanged } = this._panel.sessionContext;
    const look = () => {
      const open = this._menu === menu && menu.isAttached;
      if (open && this._model.kernel(this._kernelId) === undefined) {
        return;
      }
      this._model.changed.disconnect(look);
      kernelChanged.disconnect(look);
      if (open) {
        this.openMenu(fromKeyboard);
      }
    };
    this._model.changed.connect(look);
    kernelChanged.connect(look);
    void this._model.refresh();
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
    const state = shownState(kernel);
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
        // A press of Enter or Space is a click without a pointer.
        onClick={event => this.openMenu(event.detail === 0)}
        onKeyDown={event => {
          if (event.key === 'ArrowDown') {
            event.preventDefault();
            this.openMenu(true);
          }
        }}
      >
        <gpuIcon.react tag="span" width="16px" height="16px" />
        <span className="jp-GpuPool-toolbarLabel">{label}</span>
      </button>
    );
  }

  /** Who opened the menu by keyboard goes on where they were. */
  private _onMenuClosing(menu: Menu): void {
    const button = this.node.querySelector('button');
    button?.removeAttribute('aria-expanded');
    if (menu.node.contains(document.activeElement)) {
      const before = this._focusedBefore?.isConnected
        ? this._focusedBefore
        : button;
      before?.focus();
      if (document.activeElement !== before) {
        // A toolbar passes focus from outside to what had it last; once it is
        // inside it stays where it is put.
        before?.focus();
      }
    }
    this._focusedBefore = null;
  }

  private _closeMenu(): void {
    this._menu?.dispose();
    this._menu = null;
  }

  private get _kernelId(): string | null {
    return this._panel.sessionContext.session?.kernel?.id ?? null;
  }

  private _onKernel(): void {
    this.update();
  }

  private _menu: MenuSvg | null = null;
  /** Where the keyboard was when the menu was opened. */
  private _focusedBefore: HTMLElement | null = null;
}

/**
 * Lumino gives lines that open another menu no role, which leaves them out for
 * screen readers, separators take the focus, and a choice that is not the
 * present one is a plain line.
 */
class MenuRoles extends MenuSvg.Renderer {
  override renderItem(
    data: Menu.IRenderData
  ): ReturnType<MenuSvg.Renderer['renderItem']> {
    const item = super.renderItem(data);
    if (data.item.type === 'separator') {
      // There is nothing to do at a line between others.
      Reflect.deleteProperty(item.attrs, 'tabindex');
    }
    return item;
  }

  override createItemARIA(
    data: Menu.IRenderData
  ): ReturnType<MenuSvg.Renderer['createItemARIA']> {
    const attributes = super.createItemARIA(data);
    const { type, command, isToggled } = data.item;
    if (type === 'submenu') {
      return { ...attributes, role: 'menuitem' };
    }
    if (type === 'separator') {
      return { ...attributes, role: 'separator' };
    }
    return command === CommandIDs.setIdle
      ? {
          ...attributes,
          role: 'menuitemradio',
          'aria-checked': isToggled ? 'true' : 'false'
        }
      : attributes;
  }
}

const RENDERER = new MenuRoles();

function newMenu(commands: CommandRegistry): MenuSvg {
  return new MenuSvg({ commands, renderer: RENDERER });
}

/** Puts the entries into a menu; submenus are disposed of with it. */
function fill(menu: MenuSvg, entries: readonly MenuEntry[]): void {
  for (const entry of entries) {
    if (entry === 'separator') {
      menu.addItem({ type: 'separator' });
    } else if ('submenu' in entry) {
      const submenu = newMenu(menu.commands);
      submenu.title.label = entry.submenu;
      submenu.contentNode.setAttribute('aria-label', entry.submenu);
      fill(submenu, entry.entries);
      menu.disposed.connect(() => submenu.dispose());
      menu.addItem({ type: 'submenu', submenu });
    } else {
      menu.addItem({ command: entry.command, args: entry.args });
    }
  }
}

/** Few characters: the toolbar is narrow. */
export function buttonText(
  kernel: GpuPool.IKernel | undefined,
  model: IGpuPool,
  trans: TranslationBundle
): string {
  if (hasFailed(kernel)) {
    return trans.__('failed');
  }
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
  const word = stateWord(shownState(kernel), trans);
  return kernel?.share ? `${word}, ${shareText(kernel.share)}` : word;
}
