import { REASONS } from '../api/reasons';
import type { GpuPool } from '../api/types';
import { noteOf } from '../figures/rows';
import { holds } from '../figures/session';
import { deviceNames } from '../text/devices';
import { formatGuess } from '../text/format';
import { withoutHelps } from '../text/sentence';
import { enforcementText, reasonSentence, shareText } from '../text/words';
import { h } from '../ui/jsx';
import type { IContext } from './context';

/**
 * A request that was refused after it had been accepted: it waited in vain,
 * or the pool went away. The kernel itself then carries the reason.
 */
export function lateRefusal(kernel: GpuPool.IKernel): string | null {
  const idle = !holds(kernel) && kernel.state !== 'queued';
  return idle && kernel.reason !== null && !REASONS.has(kernel.reason)
    ? kernel.message
    : null;
}

/** One line below the name: what is held, waited for, or why nothing is. */
export function KernelDetail(props: {
  kernel: GpuPool.IKernel;
  /** It is the one of the notebook that one works in. */
  front: boolean;
  context: IContext;
}): JSX.Element | null {
  const { kernel, front, context } = props;
  const { trans } = context;
  const text = detailText(kernel, context);
  const said = kernel.silent ? kernel.message : null;
  const title = [said, text, enforcementText(kernel, trans)]
    .filter(Boolean)
    .join('\n');
  return text === '' && !front ? null : (
    <div className="jp-GpuPool-detail" title={title}>
      {front ? (
        <span
          className="jp-GpuPool-tag"
          data-kind="front"
          title={trans.__('The notebook that you work in')}
        >
          {trans.__('in front')}
        </span>
      ) : null}
      {text === '' ? null : <span>{text}</span>}
    </div>
  );
}

function detailText(kernel: GpuPool.IKernel, { trans }: IContext): string {
  if (holds(kernel)) {
    const named = deviceNames(kernel.devices, trans);
    const places = kernel.software ? trans.__('%1 (software)', named) : named;
    return [
      kernel.silent ? trans.__('waits for the GPU pool') : null,
      kernel.share
        ? trans.__('%1 of %2', shareText(kernel.share), places)
        : places,
      kernel.project ? trans.__('project %1', kernel.project) : null,
      heldBy(kernel, trans)
    ]
      .filter(Boolean)
      .join(' · ');
  }
  if (kernel.state === 'queued' && kernel.queue) {
    const { place, eta_seconds } = kernel.queue;
    const { explanation, reason } = kernel.queue;
    return [
      kernel.returning && kernel.reason !== null
        ? reasonSentence(kernel.reason)
        : null,
      place > 0 ? trans.__('Place %1', place) : null,
      // What would help stands below it with a button.
      explanation ? withoutHelps(explanation.said) : reason,
      eta_seconds === null
        ? null
        : trans.__('about %1 to wait', formatGuess(eta_seconds))
    ]
      .filter(part => part !== null)
      .join(' · ');
  }
  // A note of its own says why the last share went back.
  if (lateRefusal(kernel) === null && noteOf(kernel) === null) {
    // A release that is no news any more is said in few words.
    if (kernel.message !== null && kernel.released === null) {
      return kernel.message;
    }
    if (kernel.state !== 'none' && kernel.reason !== null) {
      return reasonSentence(kernel.reason);
    }
  }
  // Kernels without a document are all called alike.
  return kernel.path ? '' : trans.__('kernel %1', kernel.kernel_id.slice(0, 8));
}

/** Until when a share is held, where no person holds it by a button. */
function heldBy(
  kernel: GpuPool.IKernel,
  trans: IContext['trans']
): string | null {
  switch (kernel.by) {
    case 'magic':
      return trans.__('for a cell (%1)', '%%gpu');
    case 'attach':
      return trans.__('held by %1', '%gpu attach');
    case 'auto':
      return trans.__('held by %1', '%gpu auto');
    default:
      return null;
  }
}
