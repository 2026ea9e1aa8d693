import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import React from 'react';
import { gpuIcon } from '../icons';
import { SIDEBAR_ID } from '../tokens';
import type { IContext } from './context';
import { KernelsSection } from './KernelsSection';
import { PoolSection } from './PoolSection';
import { Problem } from './Problem';
import { QueueSection } from './QueueSection';

/** The sidebar: pool, kernels, queue. It shows the model and nothing else. */
export class GpuSidebar extends ReactWidget {
  constructor(private readonly _context: IContext) {
    super();
    const { trans } = _context;
    this.id = SIDEBAR_ID;
    this.addClass('jp-GpuPool');
    this.title.icon = gpuIcon;
    this.title.caption = trans.__('GPU pool');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPU pool'));
  }

  protected override render(): JSX.Element {
    const { model } = this._context;
    return (
      <UseSignal signal={model.preferencesChanged}>
        {() => (
          <UseSignal signal={model.changed}>
            {() => {
              const state = model.state;
              return (
                <>
                  {state.problem ? (
                    <Problem problem={state.problem} context={this._context} />
                  ) : null}
                  <PoolSection state={state} context={this._context} />
                  <KernelsSection state={state} context={this._context} />
                  <QueueSection state={state} context={this._context} />
                </>
              );
            }}
          </UseSignal>
        )}
      </UseSignal>
    );
  }
}
