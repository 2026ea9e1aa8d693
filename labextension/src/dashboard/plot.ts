import type uPlot from 'uplot';
import type { IFigure, Tone } from './figures';

/** A chart in an element. */
export interface IPlot {
  update(times: readonly number[], values: (number | null)[][]): void;
  resize(width: number): void;
  dispose(): void;
}

const HEIGHT = 170;

let library: Promise<typeof uPlot> | null = null;

/** The chart library, loaded when the first chart is drawn. */
export function loadLibrary(): Promise<typeof uPlot> {
  library ??= Promise.all([import('uplot'), import('uplot/dist/uPlot.min.css')])
    .then(([loaded]) => loaded.default)
    .catch(error => {
      // The network may be there again for the next one who asks.
      library = null;
      throw error;
    });
  return library;
}

/**
 * Draws a figure. Colours are read from the theme now: after a change of the
 * theme it must be drawn anew.
 */
export function drawPlot(
  Library: typeof uPlot,
  host: HTMLElement,
  figure: IFigure,
  times: readonly number[],
  values: (number | null)[][],
  timeLabel: string
): IPlot {
  const theme = themeOf(host);
  const axis: uPlot.Axis = {
    stroke: theme.text,
    font: theme.font,
    grid: { stroke: theme.grid, width: 1 },
    ticks: { stroke: theme.grid, width: 1 }
  };
  const plot = new Library(
    {
      width: Math.max(200, host.clientWidth),
      height: HEIGHT,
      scales: { x: { time: true }, y: { range: rangeOf } },
      axes: [
        {
          ...axis,
          space: 80,
          values: (shown, splits) => {
            const days = (shown.scales.x.max ?? 0) - (shown.scales.x.min ?? 0);
            return splits.map(at => formatTick(at, days > 1.5 * 86_400));
          }
        },
        {
          ...axis,
          size: 76,
          values: (_plot, splits) => splits.map(value => figure.format(value))
        }
      ],
      series: [
        { label: timeLabel, value: (_plot, at) => formatMoment(at) },
        ...figure.lines.map((line): uPlot.Series => {
          const colour = theme.tone(line.tone);
          return {
            label: line.label,
            stroke: colour.line,
            fill: line.filled ? colour.area : undefined,
            width: 1.5,
            dash: line.tone === 'capacity' ? [5, 4] : undefined,
            points: { show: false },
            value: (_plot, value) =>
              value === null ? '–' : figure.format(value)
          };
        })
      ],
      cursor: { y: false, drag: { x: false, y: false } }
    },
    [times, ...values] as uPlot.AlignedData,
    host
  );
  return {
    update: (newTimes, newValues) =>
      plot.setData([newTimes, ...newValues] as uPlot.AlignedData),
    resize: width =>
      plot.setSize({ width: Math.max(200, width), height: HEIGHT }),
    dispose: () => plot.destroy()
  };
}

/** A time on the axis, as people of this place write it. */
function formatTick(unix: number, withDay: boolean): string {
  const moment = new Date(unix * 1000);
  return withDay
    ? moment.toLocaleDateString(undefined, { day: 'numeric', month: 'short' })
    : moment.toLocaleTimeString(undefined, {
        hour: 'numeric',
        minute: '2-digit'
      });
}

/** A moment with its day; null: none is pointed at. */
export function formatMoment(unix: number | null): string {
  return unix === null
    ? '–'
    : new Date(unix * 1000).toLocaleString(undefined, {
        dateStyle: 'short',
        timeStyle: 'short'
      });
}

/** From nothing up, with some air above; an empty chart has an axis, too. */
function rangeOf(_plot: uPlot, _least: number, most: number): [number, number] {
  return [0, most > 0 ? most * 1.1 : 1];
}

interface ITheme {
  text: string;
  grid: string;
  font: string;
  tone: (tone: Tone) => { line: string; area: string };
}

/** What the theme's variables come to at this element. */
function themeOf(host: HTMLElement): ITheme {
  const probe = host.ownerDocument.createElement('span');
  host.appendChild(probe);
  const colour = (variable: string): string => {
    probe.style.color = `var(${variable})`;
    return getComputedStyle(probe).color;
  };
  const text = colour('--jp-ui-font-color1');
  const grid = colour('--jp-border-color2');
  const font = `11px ${getComputedStyle(host).fontFamily || 'sans-serif'}`;
  const tones = new Map<Tone, string>();
  for (const tone of TONES) {
    tones.set(tone, colour(`--jp-private-gpupool-${tone}`));
  }
  probe.remove();
  return {
    text,
    grid,
    font,
    tone: name => {
      const line = tones.get(name) ?? text;
      return { line, area: translucent(line) };
    }
  };
}

const TONES: readonly Tone[] = [
  'capacity',
  'held',
  'used',
  'idle',
  'incoming',
  'outgoing',
  'waiting'
];

/** `rgb(1, 2, 3)` → `rgba(1, 2, 3, 0.2)`; another notation stays as it is. */
export function translucent(colour: string): string {
  const channels = /^rgba?\(\s*([\d.]+)[ ,]+([\d.]+)[ ,]+([\d.]+)/.exec(colour);
  return channels
    ? `rgba(${channels[1]}, ${channels[2]}, ${channels[3]}, 0.2)`
    : colour;
}
