import React from 'react';
import { CommandIDs } from '../commands';
import type { GpuPool } from '../tokens';
import type { IContext } from './context';

/** Says what does not answer, that it is tried again, and lets one hurry. */
export function Problem(props: {
  problem: GpuPool.IProblem;
  context: IContext;
}): JSX.Element {
  const { problem, context } = props;
  const { commands, trans } = context;
  return (
    <div className="jp-GpuPool-problem" role="alert">
      <p>{sentence(problem, context)}</p>
      {problem.kind === 'server' ? (
        <p className="jp-GpuPool-detail">{problem.message}</p>
      ) : null}
      <div className="jp-GpuPool-line">
        <span className="jp-GpuPool-detail">{trans.__('Trying again…')}</span>
        <button
          type="button"
          className="jp-GpuPool-button jp-mod-styled"
          onClick={() => void commands.execute(CommandIDs.refresh)}
        >
          {trans.__('Retry now')}
        </button>
      </div>
    </div>
  );
}

function sentence(problem: GpuPool.IProblem, { trans }: IContext): string {
  switch (problem.kind) {
    case 'pool':
      // The server's own sentence names the address that it tried.
      return problem.message || trans.__('The GPU pool does not answer.');
    case 'server':
      return trans.__('The Jupyter server does not answer.');
    case 'missing':
      return trans.__(
        'The server part is not enabled. Run: jupyter server extension enable jupyter_gpupool'
      );
  }
}
