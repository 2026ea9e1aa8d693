import { sparklinePoints } from '../components/Sparkline';
import { UsageHistory } from '../history';
import { aKernel, anAttachedKernel } from './samples';

function busy(utilization: number) {
  const kernel = anAttachedKernel();
  return { ...kernel, usage: { ...kernel.usage!, utilization } };
}

it('keeps the last samples of a kernel, oldest first', () => {
  const history = new UsageHistory(3);
  for (const value of [0.1, 0.2, 0.3, 0.4]) {
    history.record([busy(value)]);
  }
  expect(history.get('k1')).toEqual([0.2, 0.3, 0.4]);
});

it('bounds what the server reports to 0..1', () => {
  const history = new UsageHistory();
  history.record([busy(7)]);
  history.record([busy(-1)]);
  expect(history.get('k1')).toEqual([1, 0]);
});

it('forgets a kernel that is gone or has no GPU', () => {
  const history = new UsageHistory();
  history.record([busy(0.5)]);
  history.record([aKernel()]);
  expect(history.get('k1')).toEqual([]);
});

it('draws a parked session as doing nothing', () => {
  const history = new UsageHistory();
  history.record([busy(0.5)]);
  history.record([aKernel({ state: 'parked' })]);
  expect(history.get('k1')).toEqual([0.5, 0]);
});

it('draws the newest sample at the right edge', () => {
  expect(sparklinePoints([0, 1], 3)).toBe('60.0,19.0 120.0,1.0');
});
