import {
  areaPath,
  CHART_HEIGHT,
  CHART_WIDTH,
  chartPieces,
  linePath,
  type IPoint
} from '../figures/chart';
import { h } from '../ui/jsx';

/**
 * A small chart of one or two series over the same time. Decoration: whoever
 * shows it says the same in words, so it is hidden from screen readers.
 */
export function UsageChart(props: {
  /** The first is filled; a second one is a dashed line. */
  series: readonly (readonly IPoint[])[];
  /** Time at the right edge, seconds. */
  end: number;
  /** Seconds from the left edge to the right one. */
  window: number;
  /** Value at the upper edge. */
  most: number;
}): JSX.Element {
  const { series, end, window, most } = props;
  const [first, ...others] = series.map(points =>
    chartPieces(points, end, window, most)
  );
  return (
    <svg
      className="jp-GpuPool-chart"
      viewBox={`0 0 ${CHART_WIDTH} ${CHART_HEIGHT}`}
      preserveAspectRatio="none"
      aria-hidden="true"
      focusable="false"
    >
      <path
        className="jp-GpuPool-chartFloor"
        d={`M0,${CHART_HEIGHT - 0.5}H${CHART_WIDTH}`}
      />
      <path className="jp-GpuPool-chartArea" d={areaPath(first ?? [])} />
      <path className="jp-GpuPool-chartLine" d={linePath(first ?? [])} />
      {others.map((pieces, index) => (
        <path
          key={index}
          className="jp-GpuPool-chartLine"
          data-second="true"
          d={linePath(pieces)}
        />
      ))}
    </svg>
  );
}
