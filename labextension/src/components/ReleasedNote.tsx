import type { GpuPool } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { Button } from '../ui/Button';
import { h } from '../ui/jsx';
import type { IContext } from './context';

/** Why a kernel lost its GPU, what was freed and kept, and how to undo it. */
export function ReleasedNote(props: {
  kernel: GpuPool.IKernel;
  released: GpuPool.IReleased;
  pending: boolean;
  context: IContext;
}): JSX.Element {
  const { kernel, released, pending, context } = props;
  const { commands, trans } = context;
  return (
    <div className="jp-GpuPool-warning jp-GpuPool-released">
      <span className="jp-GpuPool-detail">{released.message}</span>
      {released.undo_seconds > 0 ? (
        <Button
          tone="accept"
          aria-label={trans.__('Undo the release of %1', kernel.label)}
          title={trans.__('Attach the same again, with what is in its memory')}
          aria-disabled={pending}
          onClick={() => {
            if (!pending) {
              void commands.execute(CommandIDs.undo, {
                kernelId: kernel.kernel_id,
                quiet: true
              });
            }
          }}
        >
          {trans.__('Undo')}
        </Button>
      ) : null}
    </div>
  );
}
