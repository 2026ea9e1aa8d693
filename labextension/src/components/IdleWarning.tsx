import type { GpuPool } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { formatSpan } from '../text/format';
import { Button } from '../ui/Button';
import { h } from '../ui/jsx';
import { Countdown } from './Countdown';
import type { IContext } from './context';

/** That an unused share is given back soon, and a button against it. */
export function IdleWarning(props: {
  kernel: GpuPool.IKernel;
  pending: boolean;
  context: IContext;
}): JSX.Element {
  const { kernel, context, pending } = props;
  const { commands, model, trans } = context;
  return (
    <div className="jp-GpuPool-warning">
      <div>
        {trans.__('Not used. Given back in')}{' '}
        <Countdown
          model={model}
          kernelId={kernel.kernel_id}
          label={trans.__('Time until %1 gives its GPU back', kernel.label)}
        />
        {kernel.idle ? (
          <div className="jp-GpuPool-detail">
            {clocksText(kernel.idle, context)}
          </div>
        ) : null}
      </div>
      <Button
        tone="accept"
        aria-label={trans.__('Keep the GPU of %1', kernel.label)}
        aria-disabled={pending}
        onClick={() => {
          if (!pending) {
            void commands.execute(CommandIDs.keep, {
              kernelId: kernel.kernel_id,
              quiet: true
            });
          }
        }}
      >
        {trans.__('Keep')}
      </Button>
    </div>
  );
}

/** The GPU and the kernel are idle each by a clock of its own. */
function clocksText(idle: GpuPool.IIdle, { trans }: IContext): string {
  const cell = formatSpan(idle.kernel_seconds);
  // True as well of a GPU on which nothing has ever run.
  return idle.gpu_seconds === null
    ? trans.__('No cell ran for %1.', cell)
    : trans.__(
        'No cell ran for %1, and nothing on the GPU for %2.',
        cell,
        formatSpan(idle.gpu_seconds)
      );
}
