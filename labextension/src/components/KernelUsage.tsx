import type { GpuPool } from '../api/types';
import { summarize, type IPoint } from '../figures/chart';
import { WINDOW_SECONDS } from '../model/history';
import {
  formatBytes,
  formatMib,
  formatPercent,
  formatRate,
  formatSeconds,
  formatSpan
} from '../text/format';
import { longWork } from '../text/work';
import { h } from '../ui/jsx';
import { UsageChart } from './UsageChart';
import type { IContext } from './context';

interface IProps {
  kernel: GpuPool.IKernel;
  usage: GpuPool.IUsage;
  context: IContext;
}

/** At least this is the upper edge of the network's chart, bytes a second. */
const LEAST_RATE = 64 * 1024;

/** Compute, memory and network of a kernel, now and over the last minutes. */
export function KernelUsage(props: IProps): JSX.Element {
  const { kernel, usage, context } = props;
  const samples = context.model.samples(kernel.kernel_id);
  const end = samples[samples.length - 1]?.t ?? 0;
  const of = (value: (sample: GpuPool.IUsageSample) => number): IPoint[] =>
    samples.map(sample => ({ t: sample.t, value: value(sample) }));
  const chart = { end, window: WINDOW_SECONDS };
  return (
    <div className="jp-GpuPool-usage">
      <Compute {...props} points={of(s => s.utilization)} chart={chart} />
      <Memory
        kernel={kernel}
        usage={usage}
        points={of(s => s.memory_bytes)}
        chart={chart}
        context={context}
      />
      <Network
        kernel={kernel}
        sent={of(s => s.to_device_bps)}
        received={of(s => s.from_device_bps)}
        chart={chart}
        context={context}
      />
    </div>
  );
}

interface IChart {
  end: number;
  window: number;
}

function Compute(
  props: IProps & { points: readonly IPoint[]; chart: IChart }
): JSX.Element {
  const { kernel, usage, points, chart, context } = props;
  const { trans } = context;
  const { mean, peak } = summarize(points);
  const now = Math.min(1, Math.max(0, usage.utilization));
  const work = longWork(kernel, trans);
  return (
    <div className="jp-GpuPool-usageRow">
      <span className="jp-GpuPool-usageName">{trans.__('Compute')}</span>
      <div
        className="jp-GpuPool-usageChart"
        role="meter"
        aria-label={trans.__('Compute of %1', kernel.label)}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(100 * now)}
        aria-valuetext={trans.__(
          '%1 busy; in the last two minutes %2 on average, %3 at most',
          formatPercent(now),
          formatPercent(mean),
          formatPercent(peak)
        )}
      >
        <UsageChart series={[points]} most={1} {...chart} />
      </div>
      <span
        className="jp-GpuPool-value"
        title={trans.__(
          '%1 device time, %2 calls, %3 of them waited for an answer',
          formatSeconds(usage.device_seconds),
          usage.calls,
          usage.asks
        )}
      >
        {trans.__('%1 busy', formatPercent(now))}
        {work === null ? null : (
          <span className="jp-GpuPool-workName">
            <span className="jp-GpuPool-workDot">{' · '}</span>
            <span className="jp-GpuPool-ellipsis" title={work.name}>
              {work.name}
            </span>
            {trans.__(', %1', formatSpan(work.seconds))}
          </span>
        )}
      </span>
    </div>
  );
}

function Memory(
  props: IProps & { points: readonly IPoint[]; chart: IChart }
): JSX.Element {
  const { kernel, usage, points, chart, context } = props;
  const { trans } = context;
  const mib = (kernel.share?.mib ?? 0) * (kernel.share?.count ?? 1);
  const used = usage.memory_bytes / (1024 * 1024);
  return (
    <div className="jp-GpuPool-usageRow">
      <span className="jp-GpuPool-usageName">{trans.__('Memory')}</span>
      <div
        className="jp-GpuPool-usageChart"
        role="meter"
        aria-label={trans.__('GPU memory of %1', kernel.label)}
        aria-valuemin={0}
        // A share that became smaller may hold more than it should for a while.
        aria-valuemax={Math.max(mib, Math.round(used))}
        aria-valuenow={Math.round(used)}
        aria-valuetext={trans.__(
          '%1 of %2, %3 at most',
          formatBytes(usage.memory_bytes),
          formatMib(mib),
          formatBytes(usage.memory_peak_bytes)
        )}
      >
        <UsageChart series={[points]} most={mib * 1024 * 1024} {...chart} />
      </div>
      <span className="jp-GpuPool-value">
        {`${formatBytes(usage.memory_bytes)} / ${formatMib(mib)}`}
      </span>
    </div>
  );
}

function Network(props: {
  kernel: GpuPool.IKernel;
  sent: readonly IPoint[];
  received: readonly IPoint[];
  chart: IChart;
  context: IContext;
}): JSX.Element {
  const { kernel, sent, received, chart, context } = props;
  const { trans } = context;
  const to = summarize(sent);
  const from = summarize(received);
  return (
    <div className="jp-GpuPool-usageRow">
      <span className="jp-GpuPool-usageName">{trans.__('Network')}</span>
      <div
        className="jp-GpuPool-usageChart"
        role="img"
        aria-label={trans.__(
          'Network of %1: %2 to the GPU, %3 from it; at most %4 and %5 in the last two minutes',
          kernel.label,
          formatRate(to.now),
          formatRate(from.now),
          formatRate(to.peak),
          formatRate(from.peak)
        )}
      >
        <UsageChart
          series={[sent, received]}
          most={Math.max(LEAST_RATE, to.peak, from.peak)}
          {...chart}
        />
      </div>
      <span
        className="jp-GpuPool-value"
        title={trans.__('To the GPU, and from it (dashed)')}
      >
        <Rate sign="↑" label={trans.__('to the GPU')} rate={to.now} />
        <Rate sign="↓" label={trans.__('from the GPU')} rate={from.now} />
      </span>
    </div>
  );
}

function Rate(props: {
  sign: string;
  label: string;
  rate: number;
}): JSX.Element {
  return (
    <span className="jp-GpuPool-rate">
      <span aria-hidden="true">{props.sign}</span>
      <span className="jp-GpuPool-hidden">{props.label}</span>
      {` ${formatRate(props.rate)}`}
    </span>
  );
}
