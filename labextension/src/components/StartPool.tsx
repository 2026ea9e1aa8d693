import { useState } from 'react';
import { CommandIDs } from '../commands/ids';
import { mayStart } from '../model/mayStart';
import type { IGpuPool } from '../model/tokens';
import { Button } from '../ui/Button';
import { h } from '../ui/jsx';
import type { IContext } from './context';

/** Whether the offer below says all that there is to say. */
export function replacesProblem({ pool, problem }: IGpuPool.IState): boolean {
  return mayStart(pool) && problem?.kind === 'setting';
}

/** Offers a pool where the server has none, and nobody gave it one. */
export function StartPool(props: {
  state: IGpuPool.IState;
  context: IContext;
}): JSX.Element | null {
  const { commands, trans } = props.context;
  const [starting, setStarting] = useState(false);
  const [failure, setFailure] = useState('');
  const { pool } = props.state;
  if (!mayStart(pool)) {
    return null;
  }
  const start = async () => {
    setStarting(true);
    setFailure('');
    try {
      await commands.execute(CommandIDs.startPool);
    } catch (error) {
      setFailure(error instanceof Error ? error.message : String(error));
    } finally {
      setStarting(false);
    }
  };
  return (
    <div
      className="jp-GpuPool-problem"
      role="group"
      aria-label={trans.__('No GPU pool')}
      data-focus-group=""
    >
      <p>{trans.__('No GPU pool is configured, and none runs here.')}</p>
      <p className="jp-GpuPool-detail">
        {pool.startable === 'borrows'
          ? trans.__(
              'One that you start borrows GPUs as your own jobs, while somebody needs them, and ends with this server.'
            )
          : trans.__(
              'One on this machine lends its NVIDIA GPUs, or software GPUs, and ends with this server.'
            )}
      </p>
      <div role="alert">
        {failure ? <p className="jp-GpuPool-detail">{failure}</p> : null}
      </div>
      <Button
        data-focus-home=""
        tone="accept"
        aria-disabled={starting}
        onClick={() => void (starting || start())}
      >
        {starting
          ? trans.__('Starting a pool…')
          : trans.__('Start a pool here')}
      </Button>
    </div>
  );
}
