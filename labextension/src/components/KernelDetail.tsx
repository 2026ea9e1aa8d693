import { REASONS } from '../api/reasons';
import type { GpuPool } from '../api/types';
import { holds } from '../figures/session';
import { formatGuess } from '../text/format';
import { withoutHelps } from '../text/sentence';
import { reasonSentence, shareSentence } from '../text/words';
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
  context: IContext;
}): JSX.Element | null {
  const { kernel, context } = props;
  const text = detailText(kernel, context);
  return text === '' ? null : (
    <div className="jp-GpuPool-detail" title={text}>
      {text}
    </div>
  );
}

function detailText(kernel: GpuPool.IKernel, { trans }: IContext): string {
  if (holds(kernel)) {
    return [
      kernel.share ? shareSentence(kernel.share, trans) : null,
      kernel.devices?.join(', ') || kernel.device,
      kernel.project ? trans.__('project %1', kernel.project) : null,
      kernel.by === 'magic' ? trans.__('by %1', '%%gpu') : null,
      kernel.by === 'attach' ? trans.__('by %1', '%gpu attach') : null,
      kernel.by === 'auto' ? trans.__('by %1', '%gpu auto') : null
    ]
      .filter(part => part !== null)
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
  if (lateRefusal(kernel) === null && !kernel.released) {
    if (kernel.message !== null) {
      return kernel.message;
    }
    if (kernel.state !== 'none' && kernel.reason !== null) {
      return reasonSentence(kernel.reason);
    }
  }
  // Kernels without a document are all called alike.
  return kernel.path
    ? kernel.name
    : trans.__('kernel %1', kernel.kernel_id.slice(0, 8));
}
