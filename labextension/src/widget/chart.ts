/** The last minutes of a kernel on one canvas: compute as an area, memory as a line. */
import type { GpuPool } from '../api/types';
import {
  CHART_HEIGHT,
  CHART_WIDTH,
  chartPieces,
  summarize,
  type IPoint
} from '../figures/chart';
import { formatPercent } from '../text/format';
import { element, setAttribute } from './elements';
import { HISTORY_SECONDS } from './sharedUsage';
import { coveredText } from './words';

type Samples = readonly GpuPool.IUsageSample[];

export interface IChart {
  canvas: HTMLElement;
  /** `granted`: the memory of the share in bytes, 0 while there is none. */
  draw(samples: Samples, granted: number): void;
  dispose(): void;
}

export function chart(): IChart {
  const canvas = element('canvas', 'jp-GpuUsage-chart');
  canvas.setAttribute('role', 'img');
  let size: { width: number; height: number; scale: number } | null = null;
  let last: { samples: Samples; granted: number; newest: number } | null = null;

  function paint(): void {
    const context = canvas.getContext('2d');
    if (!size || !last || !context) {
      return;
    }
    const { width, height, scale } = size;
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
    } else {
      context.clearRect(0, 0, width, height);
    }
    const { samples, granted, newest } = last;
    // Both colours are the theme's; style is read here before anything is written in this frame.
    const style = getComputedStyle(canvas);
    context.lineWidth = 1.5 * scale;
    const lines = (points: IPoint[], most: number): [number, number][][] =>
      chartPieces(points, newest, HISTORY_SECONDS, most).map(piece =>
        piece.map(([x, y]) => [
          (x * width) / CHART_WIDTH,
          (y * height) / CHART_HEIGHT
        ])
      );
    context.strokeStyle = context.fillStyle = style.color;
    for (const line of lines(computeOf(samples), 1)) {
      trace(context, line);
      context.stroke();
      context.lineTo(line[line.length - 1][0], height);
      context.lineTo(line[0][0], height);
      context.globalAlpha = 0.2;
      context.fill();
      context.globalAlpha = 1;
    }
    if (granted) {
      context.strokeStyle = style.outlineColor;
      context.setLineDash([4 * scale, 3 * scale]);
      for (const line of lines(memoryOf(samples), granted)) {
        trace(context, line);
        context.stroke();
      }
      context.setLineDash([]);
    }
  }

  // The size is told, so that no frame has to ask for it.
  const watch = new ResizeObserver(entries => {
    const box = entries[entries.length - 1].contentRect;
    const scale = globalThis.devicePixelRatio || 1;
    if (box.width > 0) {
      size = {
        width: Math.round(box.width * scale),
        height: Math.round(box.height * scale),
        scale
      };
      paint();
    }
  });
  watch.observe(canvas);

  return {
    canvas,
    dispose: () => watch.disconnect(),
    draw(samples, granted) {
      const newest = samples[samples.length - 1]?.t ?? 0;
      if (last?.newest === newest && last.granted === granted) {
        return;
      }
      last = { samples, granted, newest };
      paint();
      setAttribute(canvas, 'aria-label', describe(samples, granted, newest));
    }
  };
}

function computeOf(samples: Samples): IPoint[] {
  return samples.map(({ t, utilization }) => ({ t, value: utilization }));
}

function memoryOf(samples: Samples): IPoint[] {
  return samples.map(({ t, memory_bytes }) => ({ t, value: memory_bytes }));
}

function describe(samples: Samples, granted: number, newest: number): string {
  const { mean } = summarize(computeOf(samples));
  const { peak } = summarize(memoryOf(samples));
  const memory = granted
    ? `, memory up to ${formatPercent(peak / granted)} of the share`
    : '';
  if (!granted && newest === 0) {
    return 'GPU use: nothing was measured';
  }
  const covered = coveredText(newest, granted > 0);
  return `GPU use over the ${covered}, ${formatPercent(mean)} on average${memory}`;
}

function trace(
  context: CanvasRenderingContext2D,
  line: readonly [number, number][]
): void {
  context.beginPath();
  for (const [x, y] of line) {
    context.lineTo(x, y);
  }
}
