import React from 'react';

const WIDTH = 120;
const HEIGHT = 20;

/** Where the line runs, newest sample at the right edge. */
export function sparklinePoints(
  samples: readonly number[],
  capacity: number
): string {
  const step = WIDTH / Math.max(1, capacity - 1);
  const first = WIDTH - step * (samples.length - 1);
  return samples
    .map((value, index) => {
      const x = first + step * index;
      const y = HEIGHT - 1 - value * (HEIGHT - 2);
      return `${x.toFixed(1)},${y.toFixed(1)}`;
    })
    .join(' ');
}

/**
 * Utilization over the last samples. Decoration: the number beside it says
 * the same, so it is hidden from screen readers.
 */
export function Sparkline(props: {
  samples: readonly number[];
  capacity?: number;
}): JSX.Element {
  const { samples, capacity = 60 } = props;
  const line = sparklinePoints(samples, capacity);
  const first = line.split(',')[0];
  return (
    <svg
      className="jp-GpuPool-sparkline"
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      aria-hidden="true"
      focusable="false"
    >
      <line x1={0} x2={WIDTH} y1={HEIGHT - 0.5} y2={HEIGHT - 0.5} />
      {samples.length > 1 ? (
        <>
          <polygon points={`${first},${HEIGHT} ${line} ${WIDTH},${HEIGHT}`} />
          <polyline points={line} />
        </>
      ) : null}
    </svg>
  );
}
