import type { GpuPool } from '../api/types';
import { formatShare } from '../figures/share';
import { poolNow } from '../model/known';
import type { IGpuPool } from '../model/tokens';
import { formatGuess, formatMib } from '../text/format';
import { render } from '../text/sentence';
import { ownerText } from '../text/words';
import { h } from '../ui/jsx';
import { Section } from './Section';
import type { IContext } from './context';

/** Who waits for a share, in order, and why. */
export function QueueSection(props: {
  state: IGpuPool.IState;
  context: IContext;
}): JSX.Element {
  const { context } = props;
  const { trans } = context;
  const queue = props.state.pool?.queue ?? [];
  const more = props.state.pool?.queue_left_out ?? null;
  return (
    <Section
      id="queue"
      context={context}
      title={trans.__('Queue')}
      summary={
        queue.length > 0
          ? trans.__('%1 waiting', queue.length + (more ?? 0))
          : undefined
      }
    >
      {queue.length > 0 ? (
        <ol className="jp-GpuPool-list" aria-label={trans.__('Queue')}>
          {queue.map(entry => (
            <Entry key={keyOf(entry)} entry={entry} context={context} />
          ))}
        </ol>
      ) : (
        <p className="jp-GpuPool-empty">
          {poolNow(props.state) && more !== null
            ? trans.__('Nobody waits.')
            : trans.__('The queue is not known now.')}
        </p>
      )}
      {more ? (
        <p className="jp-GpuPool-empty">
          {trans.__('%1 more wait, behind these.', more)}
        </p>
      ) : null}
    </Section>
  );
}

function Entry(props: {
  entry: GpuPool.IQueueEntry;
  context: IContext;
}): JSX.Element {
  const { entry, context } = props;
  const { trans } = context;
  const label = ownerText(entry, trans);
  const detail = [
    entry.mib ? formatMib(entry.mib) : null,
    entry.reason,
    entry.eta_seconds === null
      ? null
      : trans.__('about %1 to wait', formatGuess(entry.eta_seconds))
  ].filter(text => text !== null);
  return (
    <li className="jp-GpuPool-entry" aria-label={label}>
      <div className="jp-GpuPool-line">
        <span className="jp-GpuPool-place">{entry.place}</span>
        <span className="jp-GpuPool-owner" title={label}>
          {label}
        </span>
        <span className="jp-GpuPool-value">{sizeText(entry, trans)}</span>
      </div>
      {/* A kernel of this page has all of it in its row, with buttons. */}
      {entry.kernel_id ? null : (
        <div className="jp-GpuPool-detail">{detail.join(' · ')}</div>
      )}
      {!entry.mine || entry.kernel_id ? null : (
        <Advice entry={entry} context={context} />
      )}
    </li>
  );
}

/** What would help an own request that was made elsewhere. */
function Advice(props: {
  entry: GpuPool.IQueueEntry;
  context: IContext;
}): JSX.Element | null {
  const { entry, context } = props;
  const helps = entry.explanation?.helps ?? [];
  return helps.length === 0 ? null : (
    <ul
      className="jp-GpuPool-notes"
      aria-label={context.trans.__('What would help %1', entry.label)}
    >
      {helps
        .map(help => render(help.said))
        .map(words => (
          <li key={words}>{words}</li>
        ))}
    </ul>
  );
}

/** `0.2 GPU`, `2 × 0.2 GPU`; empty when only memory was asked for. */
function sizeText(
  entry: GpuPool.IQueueEntry,
  trans: IContext['trans']
): string {
  if (!entry.milli) {
    return '';
  }
  const one = trans.__('%1 GPU', formatShare(entry.milli));
  return (entry.count ?? 1) > 1 ? `${entry.count} × ${one}` : one;
}

function keyOf(entry: GpuPool.IQueueEntry): string {
  return entry.kernel_id ?? `${entry.user}/${entry.label}/${entry.place}`;
}
