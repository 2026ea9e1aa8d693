import { nullTranslator } from '@jupyterlab/translation';
import { figuresOf } from '../../dashboard/figures';
import {
  formatBytes,
  formatCountdown,
  formatGuess,
  formatMib,
  formatPercent,
  formatRate,
  formatSeconds,
  formatSpan
} from '../../text/format';

it.each([
  [0, '0 B'],
  [999, '999 B'],
  [1023, '1 KiB'],
  [1536, '1.5 KiB'],
  [1000 * 1024, '1 MiB'],
  [300 * 1024 * 1024, '300 MiB'],
  [5.25 * 1024 ** 3, '5.3 GiB'],
  [-1, '0 B']
])('%p bytes are shown as %p', (bytes, text) => {
  expect(formatBytes(bytes)).toBe(text);
});

it('counts what is copied as memory is counted, in every view', () => {
  const network = figuresOf('cluster', nullTranslator.load('')).find(
    figure => figure.id === 'network'
  );
  expect(network?.format).toBe(formatRate);
  expect([0, 999, 1_500_000, 3e9].map(formatRate)).toEqual([
    '0 B/s',
    '999 B/s',
    '1.4 MiB/s',
    '2.8 GiB/s'
  ]);
});

it('shows memory of shares in the unit that fits', () => {
  expect(formatMib(1587)).toBe('1.5 GiB');
  expect(formatMib(512)).toBe('512 MiB');
});

it('never shows a share of time outside 0..100 %', () => {
  expect([-0.1, 0, 0.404, 1, 1.3].map(formatPercent)).toEqual([
    '0 %',
    '0 %',
    '40 %',
    '100 %',
    '100 %'
  ]);
});

it('rounds a countdown up, so that 0:00 means over', () => {
  expect([0, 0.1, 37, 37.2, 60, 3700, -5].map(formatCountdown)).toEqual([
    '0:00',
    '0:01',
    '0:37',
    '0:38',
    '1:00',
    '61:40',
    '0:00'
  ]);
});

it('shows a guess no finer than it is', () => {
  expect([0.2, 45, 130, 3600, 7300].map(formatGuess)).toEqual([
    '1 s',
    '45 s',
    '3 min',
    '60 min',
    '2 h'
  ]);
});

// The same figures as in test_jupyter_released.py: both stand in one row.
it.each([
  [0, '0 s'],
  [0.5, '0 s'],
  [45.4, '45 s'],
  [60, '1 min'],
  [90, '90 s'],
  [119, '119 s'],
  [119.6, '2 min'],
  [150, '2 min'],
  [210, '4 min'],
  [599, '10 min'],
  [600, '10 min'],
  [3_599, '1 h'],
  [3_600, '1 h'],
  [5_400, '1 h 30 min'],
  [7_199, '2 h'],
  [90_000, '25 h']
])('%p seconds are said as the server says them: %p', (seconds, text) => {
  expect(formatSpan(seconds)).toBe(text);
});

it('shows device time in the unit that fits', () => {
  expect([0.0123, 1.234, 99.4, 200].map(formatSeconds)).toEqual([
    '12 ms',
    '1.23 s',
    '99.4 s',
    '3 min 20 s'
  ]);
  // Never 60 of one unit, or 1000 of the other.
  expect([0.9996, 119.7, 59.96].map(formatSeconds)).toEqual([
    '1 s',
    '2 min 0 s',
    '60 s'
  ]);
});
