import type { GpuPool } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { enoughShare, resizeLimit } from '../figures/room';
import { holds } from '../figures/session';
import { poolNow } from '../model/known';
import { workNotes } from '../text/work';
import { Button } from '../ui/Button';
import { Fragment, h } from '../ui/jsx';
import type { IContext } from './context';

/**
 * What a session does after its lease, why it can do nothing any more, and
 * what it had no memory for; each with what helps.
 */
export function WorkNotes(props: {
  kernel: GpuPool.IKernel;
  pending: boolean;
  context: IContext;
}): JSX.Element | null {
  const { kernel, pending, context } = props;
  const notes = workNotes(kernel, context.trans);
  return notes.length === 0 ? null : (
    <>
      {notes.map(({ kind, text }) => (
        <div
          key={kind}
          className="jp-GpuPool-warning jp-GpuPool-work"
          data-kind={kind}
          role="note"
        >
          <span className="jp-GpuPool-detail">{text}</span>
          {kind === 'memory' ? (
            <Resize kernel={kernel} pending={pending} context={context} />
          ) : (
            <Reset kernel={kernel} pending={pending} context={context} />
          )}
        </div>
      ))}
    </>
  );
}

/** Ends the GPU session; asks first. */
export function Reset(props: {
  kernel: GpuPool.IKernel;
  pending: boolean;
  context: IContext;
}): JSX.Element {
  const { kernel, pending, context } = props;
  const { commands, trans } = context;
  return (
    <Button
      tone="warn"
      aria-label={trans.__('Reset the GPU session of %1', kernel.label)}
      title={trans.__(
        'End the GPU session: arrays in GPU memory are lost, Python variables stay'
      )}
      aria-disabled={pending}
      onClick={() => {
        if (!pending) {
          void commands.execute(CommandIDs.reset, {
            kernelId: kernel.kernel_id,
            quiet: true
          });
        }
      }}
    >
      {trans.__('Reset')}
    </Button>
  );
}

/** The share that what was refused fits in, where the pool has it now. */
function Resize(props: {
  kernel: GpuPool.IKernel;
  pending: boolean;
  context: IContext;
}): JSX.Element | null {
  const { kernel, pending, context } = props;
  const { commands, model, trans } = context;
  const pool = poolNow(model.state);
  const share = enoughShare(kernel, pool, resizeLimit(kernel, pool));
  if (share === null || !holds(kernel) || kernel.notice) {
    return null;
  }
  return (
    <Button
      tone="accept"
      aria-label={trans.__('Resize %1 to %2', kernel.label, share)}
      aria-disabled={pending}
      onClick={() => {
        if (!pending) {
          void commands.execute(CommandIDs.resize, {
            kernelId: kernel.kernel_id,
            share,
            quiet: true
          });
        }
      }}
    >
      {trans.__('Resize to %1', share)}
    </Button>
  );
}
