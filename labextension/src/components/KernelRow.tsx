import type { GpuPool } from '../api/types';
import { noteOf } from '../figures/rows';
import { hasFailed, holds } from '../figures/session';
import { longWork } from '../text/work';
import { h } from '../ui/jsx';
import { Helps } from './Helps';
import { IdleChoice } from './IdleChoice';
import { IdleWarning } from './IdleWarning';
import { KernelDetail, lateRefusal } from './KernelDetail';
import { KernelForm } from './KernelForm';
import { KernelHead } from './KernelHead';
import { KernelUsage } from './KernelUsage';
import { NoticeBanner } from './NoticeBanner';
import { ReleasedNote } from './ReleasedNote';
import { SessionNotes } from './SessionNotes';
import { Reset, WorkNotes } from './WorkNotes';
import type { IContext } from './context';

interface IProps {
  kernel: GpuPool.IKernel;
  pending: boolean;
  failure: string | undefined;
  /** What a queued kernel has asked for, as a person writes it. */
  asked?: string;
  front?: boolean;
  onFold?: () => void;
  /** The button that folds it has the focus when it comes. */
  focusFold?: boolean;
  context: IContext;
}

/** One running kernel: its state, its share, what it uses, what one can do. */
export function KernelRow(props: IProps): JSX.Element {
  const { kernel, pending, failure, asked, onFold, context } = props;
  const front = props.front ?? false;
  const released = noteOf(kernel);
  // "No pool" is wrong once the pool answers again; that nothing came of the request is not.
  const stale =
    kernel.reason === 'pool-down' && context.model.state.problem === null;
  const late = lateRefusal(kernel);
  const refused =
    failure ??
    (late !== null && stale
      ? context.trans.__(
          'The pool did not answer when it was asked. It does now: ask again.'
        )
      : late);
  return (
    <li
      className="jp-GpuPool-kernel"
      aria-label={kernel.label}
      data-state={hasFailed(kernel) ? 'failed' : kernel.state}
      data-front={front}
      data-focus-group=""
    >
      <KernelHead
        kernel={kernel}
        pending={pending}
        onFold={onFold}
        focusFold={props.focusFold}
        context={context}
      />
      <KernelDetail kernel={kernel} front={front} context={context} />
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
        <IdleWarning kernel={kernel} context={context} pending={pending} />
      ) : null}
      {released ? (
        <ReleasedNote
          kernel={kernel}
          released={released}
          pending={pending}
          context={context}
        />
      ) : null}
      <WorkNotes kernel={kernel} pending={pending} context={context} />
      {holds(kernel) && kernel.usage ? (
        <KernelUsage kernel={kernel} usage={kernel.usage} context={context} />
      ) : null}
      {longWork(kernel, context.trans) && !hasFailed(kernel) ? (
        <div className="jp-GpuPool-longWork">
          <Reset kernel={kernel} pending={pending} context={context} />
        </div>
      ) : null}
      <KernelForm
        kernel={kernel}
        pending={pending}
        asked={asked}
        context={context}
      />
      {holds(kernel) && kernel.idle ? (
        <IdleChoice
          kernel={kernel}
          idle={kernel.idle}
          pending={pending}
          context={context}
        />
      ) : null}
      {refused === null ? null : (
        <div className="jp-GpuPool-failure" role="alert">
          {refused}
        </div>
      )}
    </li>
  );
}
