import {
  areaPath,
  chartPieces,
  linePath,
  summarize
} from '../../figures/chart';

const points = (...pairs: [number, number][]) =>
  pairs.map(([t, value]) => ({ t, value }));

it('draws the newest sample at the right edge, the largest value at the top', () => {
  expect(chartPieces(points([95, 0], [100, 1]), 100, 10, 1)).toEqual([
    [
      [60, 19],
      [120, 1]
    ]
  ]);
});

it('bounds what the server reports', () => {
  const [piece] = chartPieces(points([99, 7], [100, -1]), 100, 10, 1);
  expect(piece.map(([, y]) => y)).toEqual([1, 19]);
});

it('leaves out what is older than the window', () => {
  const pieces = chartPieces(points([80, 1], [100, 1]), 100, 10, 1);
  expect(pieces).toEqual([[[120, 1]]]);
});

it('draws no line over a time of which nothing is known', () => {
  const pieces = chartPieces(
    points([10, 0], [11, 0], [60, 1], [61, 1]),
    61,
    120,
    1
  );
  expect(pieces.map(piece => piece.length)).toEqual([2, 2]);
  expect(linePath(pieces).match(/M/g)).toHaveLength(2);
  expect(areaPath(pieces).match(/Z/g)).toHaveLength(2);
});

it('draws zeros where there is nothing to compare with', () => {
  const [piece] = chartPieces(points([1, 0]), 1, 10, 0);
  expect(piece).toEqual([[120, 19]]);
});

it('draws nothing of nothing', () => {
  expect(linePath(chartPieces([], 0, 120, 1))).toBe('');
});

it('says the same in three numbers', () => {
  expect(summarize(points([1, 0.2], [2, 0.6], [3, 0.4]))).toEqual({
    now: 0.4,
    mean: (0.2 + 0.6 + 0.4) / 3,
    peak: 0.6
  });
  expect(summarize([])).toEqual({ now: 0, mean: 0, peak: 0 });
});
