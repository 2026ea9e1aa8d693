/** A value at a time, seconds. */
export interface IPoint {
  t: number;
  value: number;
}

/** What one chart says in words. */
export interface ISummary {
  now: number;
  mean: number;
  peak: number;
}

/** Size of the drawing in its own units; the page stretches it. */
export const CHART_WIDTH = 120;
export const CHART_HEIGHT = 20;

/** Between samples further apart than this nothing is known, seconds. */
const GAP_SECONDS = 6;

/**
 * The pieces of a line from `end - window` (left) to `end` (right), `most` at
 * the top. A piece ends where nothing is known for a while.
 */
export function chartPieces(
  points: readonly IPoint[],
  end: number,
  window: number,
  most: number
): [number, number][][] {
  const pieces: [number, number][][] = [];
  let last = -Infinity;
  for (const { t, value } of points) {
    if (t < end - window || t > end) {
      continue;
    }
    if (t - last > GAP_SECONDS) {
      pieces.push([]);
    }
    const x = CHART_WIDTH * (1 - (end - t) / window);
    const part = most > 0 ? Math.min(1, Math.max(0, value / most)) : 0;
    pieces[pieces.length - 1].push([
      x,
      CHART_HEIGHT - 1 - part * (CHART_HEIGHT - 2)
    ]);
    last = t;
  }
  return pieces;
}

/** The line as the `d` of an SVG path. */
export function linePath(pieces: readonly [number, number][][]): string {
  return pieces.map(piece => `M${join(piece)}`).join('');
}

/** What lies under the line, down to the floor of the chart. */
export function areaPath(pieces: readonly [number, number][][]): string {
  return pieces
    .filter(piece => piece.length > 1)
    .map(piece => {
      const from = piece[0][0].toFixed(1);
      const to = piece[piece.length - 1][0].toFixed(1);
      return `M${from},${CHART_HEIGHT}L${join(piece)}L${to},${CHART_HEIGHT}Z`;
    })
    .join('');
}

/** Last, mean and largest value; zeros when there is none. */
export function summarize(points: readonly IPoint[]): ISummary {
  const values = points.map(point => point.value);
  const sum = values.reduce((total, value) => total + value, 0);
  return {
    now: values[values.length - 1] ?? 0,
    mean: values.length > 0 ? sum / values.length : 0,
    peak: Math.max(0, ...values)
  };
}

function join(piece: readonly [number, number][]): string {
  return piece.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join('L');
}
