import React from 'react';
import { CommandIDs } from '../commands';
import {
  formatBytes,
  formatGuess,
  formatMib,
  formatPercent,
  formatSeconds
} from '../format';
import { holds } from '../reduce';
import { GpuPool } from '../tokens';
import { autoText, reasonSentence, shareSentence, stateWord } from '../words';
import type { IContext } from './context';
import { Countdown } from './Countdown';
import { Helps } from './Helps';
import { KernelForm } from './KernelForm';
import { NoticeBanner } from './NoticeBanner';
import { SessionNotes } from './SessionNotes';
import { Sparkline } from './Sparkline';

interface IProps {
  kernel: GpuPool.IKernel;
  pending: boolean;
  failure: string | undefined;
  /** What a queued kernel has asked for, as a person writes it. */
  asked?: string;
  context: IContext;
}

/** One running kernel: its state, its share, what it uses, what one can do. */
export function KernelRow(props: IProps): JSX.Element {
  const { kernel, pending, failure, asked, context } = props;
  const { trans, open } = context;
  const path = kernel.path;
  // "No pool" is no news, and wrong, once the pool answers again.
  const stale =
    kernel.reason === 'pool-down' && context.model.state.problem === null;
  const refused = failure ?? (stale ? null : lateRefusal(kernel));
  return (
    <li
      className="jp-GpuPool-kernel"
      aria-label={kernel.label}
      data-state={kernel.state}
    >
      <div className="jp-GpuPool-line">
        {open && path ? (
          <button
            type="button"
            className="jp-GpuPool-link jp-GpuPool-name"
            title={trans.__('Open %1', path)}
            onClick={() => open(path)}
          >
            {kernel.label}
          </button>
        ) : (
          <span className="jp-GpuPool-name" title={path ?? kernel.kernel_id}>
            {kernel.label}
          </span>
        )}
        {kernel.busy ? (
          <span
            className="jp-GpuPool-busy"
            role="img"
            aria-label={trans.__('running a cell')}
            title={trans.__('running a cell')}
          />
        ) : null}
        {kernel.auto ? (
          <span
            className="jp-GpuPool-tag"
            title={trans.__(
              'CUDA calls outside of attached cells attach by themselves (%1)',
              '%gpu auto'
            )}
          >
            {autoText(kernel.auto, trans)}
          </span>
        ) : null}
        <span
          className="jp-GpuPool-state"
          role="status"
          data-state={kernel.state}
          data-pending={pending}
        >
          {stateWord(kernel.state, trans)}
        </span>
      </div>
      <Detail kernel={kernel} context={context} />
      <SessionNotes kernel={kernel} context={context} />
      {kernel.state === 'queued' && kernel.queue?.explanation ? (
        <Helps
          kernel={kernel}
          helps={kernel.queue.explanation.helps}
          pending={pending}
          context={context}
        />
      ) : null}
      {kernel.notice ? (
        <NoticeBanner
          kernel={kernel}
          notice={kernel.notice}
          context={context}
        />
      ) : kernel.state === 'warned' ? (
        <Warning kernel={kernel} context={context} pending={pending} />
      ) : null}
      {holds(kernel) && kernel.usage ? (
        <Usage kernel={kernel} usage={kernel.usage} context={context} />
      ) : null}
      <KernelForm
        kernel={kernel}
        pending={pending}
        asked={asked}
        context={context}
      />
      {refused === null ? null : (
        <div className="jp-GpuPool-failure" role="alert">
          {refused}
        </div>
      )}
    </li>
  );
}

/**
 * A request that was refused after it had been accepted: it waited in vain,
 * or the pool went away. The kernel itself then carries the reason.
 */
function lateRefusal(kernel: GpuPool.IKernel): string | null {
  const idle = !holds(kernel) && kernel.state !== 'queued';
  return idle && kernel.reason !== null && !GpuPool.REASONS.has(kernel.reason)
    ? kernel.message
    : null;
}

/** One line below the name: what is held, waited for, or why nothing is. */
function Detail(props: {
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
      kernel.by === 'auto' ? trans.__('by %1', '%gpu auto') : null
    ]
      .filter(part => part !== null)
      .join(' · ');
  }
  if (kernel.state === 'queued' && kernel.queue) {
    const { place, reason, eta_seconds } = kernel.queue;
    return [
      kernel.returning && kernel.reason !== null
        ? reasonSentence(kernel.reason, trans)
        : null,
      place > 0 ? trans.__('Place %1', place) : null,
      reason,
      eta_seconds === null
        ? null
        : trans.__('about %1 to wait', formatGuess(eta_seconds))
    ]
      .filter(part => part !== null)
      .join(' · ');
  }
  if (lateRefusal(kernel) === null) {
    if (kernel.message !== null) {
      return kernel.message;
    }
    if (kernel.state !== 'none' && kernel.reason !== null) {
      return reasonSentence(kernel.reason, trans);
    }
  }
  // Kernels without a document are all called alike.
  return kernel.path
    ? kernel.name
    : trans.__('kernel %1', kernel.kernel_id.slice(0, 8));
}

function Warning(props: {
  kernel: GpuPool.IKernel;
  context: IContext;
  pending: boolean;
}): JSX.Element {
  const { kernel, context, pending } = props;
  const { commands, model, trans } = context;
  return (
    <div className="jp-GpuPool-warning">
      <span>
        {trans.__('Not used. Given back in')}{' '}
        <Countdown
          model={model}
          kernelId={kernel.kernel_id}
          label={trans.__('Time until %1 gives its GPU back', kernel.label)}
        />
      </span>
      <button
        type="button"
        className="jp-GpuPool-button jp-mod-styled jp-mod-accept"
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
      </button>
    </div>
  );
}

function Usage(props: {
  kernel: GpuPool.IKernel;
  usage: GpuPool.IUsage;
  context: IContext;
}): JSX.Element {
  const { kernel, usage, context } = props;
  const { model, trans } = context;
  const mib = kernel.share?.mib ?? 0;
  const used = usage.memory_bytes / (1024 * 1024);
  return (
    <div className="jp-GpuPool-usage">
      <div className="jp-GpuPool-line">
        <Sparkline samples={model.history(kernel.kernel_id)} />
        <span
          className="jp-GpuPool-value"
          title={trans.__(
            '%1 device time, %2 calls, %3 of them waited for an answer',
            formatSeconds(usage.device_seconds),
            usage.calls,
            usage.asks
          )}
        >
          {trans.__('%1 busy', formatPercent(usage.utilization))}
        </span>
      </div>
      <div className="jp-GpuPool-line">
        <div
          className="jp-GpuPool-meter"
          role="meter"
          aria-label={trans.__('GPU memory of %1', kernel.label)}
          aria-valuemin={0}
          aria-valuemax={mib}
          aria-valuenow={Math.round(used)}
          aria-valuetext={trans.__(
            '%1 of %2',
            formatBytes(usage.memory_bytes),
            formatMib(mib)
          )}
        >
          <div
            className="jp-GpuPool-meterFill"
            style={{
              width: `${mib > 0 ? Math.min(100, (used / mib) * 100) : 0}%`
            }}
          />
        </div>
        <span className="jp-GpuPool-value">
          {`${formatBytes(usage.memory_bytes)} / ${formatMib(mib)}`}
        </span>
      </div>
    </div>
  );
}
