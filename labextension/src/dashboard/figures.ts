import type { TranslationBundle } from '@jupyterlab/translation';
import { formatRate } from '../text/format';
import type { View } from './place';
import type { GpuPool } from '../api/types';

/** How a line is drawn; the colours are `--jp-private-gpupool-<tone>`. */
export type Tone =
  'capacity' | 'held' | 'used' | 'idle' | 'incoming' | 'outgoing' | 'waiting';

export interface ILine {
  column: Exclude<keyof GpuPool.IColumns, 't'>;
  label: string;
  tone: Tone;
  /** The area below it is filled. */
  filled: boolean;
}

/** One chart: lines of one unit. */
export interface IFigure {
  id: string;
  title: string;
  /** One sentence: what the lines mean. */
  meaning: string;
  lines: readonly ILine[];
  /** What a value of a column is divided by, to be in the unit. */
  divisor: number;
  /** A value in the unit, as people read it. */
  format: (value: number) => string;
}

/** Two decimals below ten, fewer above, and a digit of what is less: 0.25, 1.5, 120, 0.004. */
export function formatNumber(value: number): string {
  if (value > 0 && value < 0.0005) {
    return '<0.001';
  }
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : value >= 0.01 ? 2 : 3;
  const text = value.toFixed(digits);
  return text.includes('.') ? text.replace(/\.?0+$/, '') : text;
}

/** The charts of a view, in their order. */
export function figuresOf(
  view: View,
  trans: TranslationBundle
): readonly IFigure[] {
  const whole = view === 'cluster' || view === 'node' || view === 'device';
  const line = (
    column: ILine['column'],
    label: string,
    tone: Tone,
    filled: boolean
  ): ILine => ({ column, label, tone, filled });
  const gpus = (value: number) => trans.__('%1 GPU', formatNumber(value));
  const held = trans.__('allocated');
  const used = trans.__('used');
  const there = trans.__('capacity');
  const compute: IFigure = {
    id: 'compute',
    title: trans.__('Compute'),
    meaning: trans.__(
      'GPUs that leases hold, and device time that was used, as workers measure it.'
    ),
    divisor: 1000,
    format: gpus,
    lines: [
      ...(whole ? [line('capacity_milli', there, 'capacity', false)] : []),
      line('held_milli', held, 'held', true),
      line('used_milli', used, 'used', true)
    ]
  };
  const memory: IFigure = {
    id: 'memory',
    title: trans.__('Memory'),
    meaning: trans.__(
      'GPU memory that is reserved, and what is kept there without a share.'
    ),
    divisor: 1024,
    format: value => trans.__('%1 GiB', formatNumber(value)),
    lines: [
      ...(whole ? [line('capacity_mib', there, 'capacity', false)] : []),
      line('held_mib', held, 'held', true),
      line('memory_mib', used, 'used', true)
    ]
  };
  const idle: IFigure = {
    id: 'idle',
    title: trans.__('Idle waste'),
    meaning: trans.__(
      'GPUs that were allocated and not used, minute by minute and session by session.'
    ),
    divisor: 1000,
    format: gpus,
    lines: [line('idle_milli', trans.__('idle'), 'idle', true)]
  };
  const network: IFigure = {
    id: 'network',
    title: trans.__('Network'),
    meaning: trans.__('What programs copied to their GPUs and back.'),
    divisor: 1,
    format: formatRate,
    lines: [
      line('to_device_bps', trans.__('to GPUs'), 'incoming', true),
      line('from_device_bps', trans.__('from GPUs'), 'outgoing', false)
    ]
  };
  const queue: IFigure = {
    id: 'queue',
    title: trans.__('Queue'),
    meaning: trans.__('How many requests waited for a GPU.'),
    divisor: 1,
    format: formatNumber,
    lines: [line('waiting', trans.__('waiting'), 'waiting', true)]
  };
  // Where a request will run, nobody knows while it waits.
  const waits = view === 'cluster' || view === 'user' || view === 'project';
  return [compute, memory, idle, network, ...(waits ? [queue] : [])];
}

/** The columns of a figure, in its unit. */
export function valuesOf(
  figure: IFigure,
  columns: GpuPool.IColumns
): (number | null)[][] {
  return figure.lines.map(({ column }) =>
    columns[column].map(value =>
      value === null ? null : value / figure.divisor
    )
  );
}

/** What a screen reader says of a chart: the last and the highest of each line. */
export function summaryOf(
  figure: IFigure,
  columns: GpuPool.IColumns,
  trans: TranslationBundle
): string {
  const parts = valuesOf(figure, columns).map((values, index) => {
    const known = values.filter((value): value is number => value !== null);
    if (known.length === 0) {
      return trans.__('%1: nothing recorded', figure.lines[index].label);
    }
    return trans.__(
      '%1: now %2, at most %3',
      figure.lines[index].label,
      figure.format(known[known.length - 1]),
      figure.format(Math.max(...known))
    );
  });
  return `${figure.title}. ${parts.join('; ')}.`;
}
