import { CommandIDs } from '../commands/ids';
import type { IGpuPool } from '../model/tokens';
import { formatTimeOfDay } from '../text/format';
import { Button } from '../ui/Button';
import { h } from '../ui/jsx';
import type { IContext } from './context';

/**
 * Says what does not answer and since when, from when what is shown is, and
 * what works all the same; that it is tried again, and lets one hurry.
 */
export function Problem(props: {
  problem: IGpuPool.IProblem;
  state: IGpuPool.IState;
  context: IContext;
}): JSX.Element {
  const { problem, state, context } = props;
  const { commands, trans } = context;
  return (
    <div
      className="jp-GpuPool-problem"
      role="group"
      aria-label={trans.__('What does not answer')}
      data-focus-group=""
    >
      {/* Only what is news is read out: the times below change nothing. */}
      <div role="alert">
        <p>{sentence(problem, context)}</p>
        {problem.kind === 'server' ? (
          <p className="jp-GpuPool-detail">{problem.message}</p>
        ) : null}
      </div>
      {sinceTexts(problem, state, context).map(text => (
        <p key={text} className="jp-GpuPool-detail">
          {text}
        </p>
      ))}
      <div className="jp-GpuPool-line">
        <span className="jp-GpuPool-detail">{trans.__('Trying again…')}</span>
        <Button
          data-focus-home=""
          onClick={() => void commands.execute(CommandIDs.refresh)}
        >
          {trans.__('Retry now')}
        </Button>
      </div>
    </div>
  );
}

function sentence(problem: IGpuPool.IProblem, { trans }: IContext): string {
  switch (problem.kind) {
    case 'pool':
      // The server's own sentence names the address that it tried.
      return problem.message || trans.__('The GPU pool does not answer.');
    case 'setting':
      return trans.__('This server cannot ask the pool: %1', problem.message);
    case 'server':
      return serverSentence(problem.status ?? 0, trans);
    case 'missing':
      return trans.__(
        'The server part is not enabled. Run: jupyter server extension enable jupyter_gpupool'
      );
  }
}

/** What a proxy says of a server behind it that does not answer, or that JupyterHub has stopped (424). */
const NO_ANSWER: ReadonlySet<number> = new Set([0, 424, 502, 503, 504]);

function serverSentence(status: number, trans: IContext['trans']): string {
  if (NO_ANSWER.has(status)) {
    return trans.__('The Jupyter server does not answer.');
  }
  if (status < 400) {
    return trans.__(
      'Another page came in place of the Jupyter server’s answer: reload this page to log in.'
    );
  }
  return status === 401 || status === 403
    ? trans.__(
        'The Jupyter server refuses (%1): reload the page to log in.',
        status
      )
    : trans.__('The Jupyter server answers with an error (%1).', status);
}

/** Since when, what is known, and what goes on meanwhile. */
function sinceTexts(
  problem: IGpuPool.IProblem,
  state: IGpuPool.IState,
  { trans }: IContext
): string[] {
  if (problem.kind === 'missing') {
    return [];
  }
  const since =
    state.problemSince === null
      ? null
      : trans.__('Since %1.', formatTimeOfDay(state.problemSince));
  const known =
    state.poolAt === null
      ? null
      : trans.__(
          'Devices and queue are shown as they were at %1.',
          formatTimeOfDay(state.poolAt)
        );
  if (problem.kind === 'setting') {
    return [
      trans.__(
        'Kernels run without a GPU until whoever configures this Jupyter server has changed it.'
      )
    ];
  }
  const works =
    problem.kind === 'pool'
      ? trans.__(
          'Notebooks run on. GPUs that are held work for about 25 s more; then CUDA calls wait until the pool answers. GPU memory is kept.'
        )
      : trans.__('Nothing can be attached or detached from here meanwhile.');
  return [[since, known].filter(text => text !== null).join(' '), works].filter(
    text => text !== ''
  );
}
