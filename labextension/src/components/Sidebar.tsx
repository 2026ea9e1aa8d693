import { ReactWidget } from '@jupyterlab/ui-components';
import type { IDisposable } from '@lumino/disposable';
import type { Message } from '@lumino/messaging';
import { SIDEBAR_ID } from '../model/tokens';
import { gpuIcon } from '../ui/icons';
import { h } from '../ui/jsx';
import { FocusKeeper } from './FocusKeeper';
import { Introduction } from './Introduction';
import { KernelsSection } from './KernelsSection';
import { PoolSection } from './PoolSection';
import { Problem } from './Problem';
import { QueueSection } from './QueueSection';
import { replacesProblem, StartPool } from './StartPool';
import type { IContext } from './context';

/**
 * The sidebar: kernels, pool, queue. It shows the model and nothing else;
 * while it is hidden it draws nothing and asks for no samples.
 */
export class GpuSidebar extends ReactWidget {
  constructor(private readonly _context: IContext) {
    super();
    const { model, trans } = _context;
    this.id = SIDEBAR_ID;
    this.addClass('jp-GpuPool');
    this.title.icon = gpuIcon;
    this.title.caption = trans.__('GPU pool');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPU pool'));
    model.changed.connect(this._onChange, this);
    model.preferencesChanged.connect(this._onChange, this);
  }

  override dispose(): void {
    if (this.isDisposed) {
      return;
    }
    const { model } = this._context;
    model.changed.disconnect(this._onChange, this);
    model.preferencesChanged.disconnect(this._onChange, this);
    this._watch?.dispose();
    super.dispose();
  }

  /** Draws anew: another notebook is in front, or the introduction was read. */
  redraw(): void {
    this._onChange();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._look();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (this.isVisible) {
      this._look();
    }
  }

  protected override onBeforeHide(message: Message): void {
    this._leave();
    super.onBeforeHide(message);
  }

  protected override onBeforeDetach(message: Message): void {
    this._leave();
    super.onBeforeDetach(message);
  }

  protected override render(): JSX.Element {
    const { state } = this._context.model;
    return (
      <FocusKeeper>
        <StartPool state={state} context={this._context} />
        {state.problem && !replacesProblem(state) ? (
          <Problem
            problem={state.problem}
            state={state}
            context={this._context}
          />
        ) : null}
        <Introduction context={this._context} />
        <KernelsSection state={state} context={this._context} />
        <PoolSection state={state} context={this._context} />
        <QueueSection state={state} context={this._context} />
      </FocusKeeper>
    );
  }

  private _look(): void {
    this._watch ??= this._context.model.watchUsage();
    this.update();
  }

  private _leave(): void {
    this._watch?.dispose();
    this._watch = null;
  }

  private _onChange(): void {
    if (this.isVisible) {
      this.update();
    }
  }

  private _watch: IDisposable | null = null;
}
