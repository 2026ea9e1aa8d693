import { caretRightIcon } from '@jupyterlab/ui-components';
import type { GpuPool } from '../api/types';
import { CommandIDs } from '../commands/ids';
import { holds } from '../figures/session';
import { formatPercent } from '../text/format';
import { shareText } from '../text/words';
import { Button } from '../ui/Button';
import { h } from '../ui/jsx';
import { KernelName } from './KernelHead';
import type { IContext } from './context';

/** A kernel that is not in front and wants nothing: its name, what it has, one button. */
export function KernelLine(props: {
  kernel: GpuPool.IKernel;
  pending: boolean;
  /** Shows all that is known of it. */
  onUnfold: () => void;
  /** The button that does has the focus when it comes. */
  focusUnfold: boolean;
  context: IContext;
}): JSX.Element {
  const { kernel, pending, onUnfold, context } = props;
  const { commands, trans } = context;
  const holding = holds(kernel);
  const run = (command: string) => {
    if (!pending) {
      void commands.execute(command, {
        kernelId: kernel.kernel_id,
        quiet: true
      });
    }
  };
  return (
    <li
      className="jp-GpuPool-kernel jp-GpuPool-kernelLine"
      aria-label={kernel.label}
      data-state={kernel.state}
      data-focus-group=""
    >
      <div className="jp-GpuPool-line">
        <button
          type="button"
          className="jp-GpuPool-link jp-GpuPool-fold"
          autoFocus={props.focusUnfold}
          aria-expanded={false}
          aria-label={trans.__('More about %1', kernel.label)}
          onClick={onUnfold}
        >
          <caretRightIcon.react tag="span" className="jp-GpuPool-caret" />
        </button>
        <KernelName kernel={kernel} context={context} />
        <span
          className="jp-GpuPool-lineState"
          role="status"
          data-state={kernel.state}
          data-pending={pending}
        >
          {holding ? shareOf(kernel, trans) : bareText(kernel, trans)}
        </span>
        {holding && kernel.usage && (
          // Beside the state: a screen reader says that at each change, and this one changes all the time.
          <span className="jp-GpuPool-lineState">
            {trans.__('%1 busy', formatPercent(kernel.usage.utilization))}
          </span>
        )}
        <Button
          tone={holding ? 'reject' : 'accept'}
          data-focus-home=""
          aria-disabled={pending}
          aria-label={
            holding
              ? trans.__('Detach the GPU from %1', kernel.label)
              : trans.__('Attach a GPU to %1', kernel.label)
          }
          onClick={() => run(holding ? CommandIDs.detach : CommandIDs.attach)}
        >
          {holding ? trans.__('Detach') : trans.__('Attach')}
        </Button>
      </div>
    </li>
  );
}

function shareOf(kernel: GpuPool.IKernel, trans: IContext['trans']): string {
  return kernel.share ? shareText(kernel.share) : trans.__('attached');
}

/** What a kernel without a GPU still has there; of most there is nothing to say. */
function bareText(kernel: GpuPool.IKernel, trans: IContext['trans']): string {
  switch (kernel.state) {
    case 'parked':
      return trans.__('memory kept');
    case 'closed':
      return trans.__('ended');
    default:
      return '';
  }
}
