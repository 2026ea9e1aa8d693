import type { GpuPool } from '../../api/types';
import { UsageHistory } from '../../model/history';
import { anAttachedKernel, aSample } from '../samples';

function kernelWith(...times: number[]): GpuPool.IKernel {
  return anAttachedKernel({ samples: times.map(t => aSample({ t })) });
}

function timesOf(history: UsageHistory): number[] {
  return history.get('k1').map(sample => sample.t);
}

it('asks for the whole window first, then for what is new', () => {
  const history = new UsageHistory(120);
  expect(history.since).toBe(-120);
  history.record([kernelWith(1000, 1001)]);
  expect(history.since).toBe(1001);
  expect(timesOf(history)).toEqual([1000, 1001]);
});

it('takes a sample that comes twice once', () => {
  const history = new UsageHistory();
  history.record([kernelWith(1000, 1001)]);
  history.record([kernelWith(1001, 1002)]);
  expect(timesOf(history)).toEqual([1000, 1001, 1002]);
});

it('keeps what it knows while nobody asks for samples', () => {
  const history = new UsageHistory();
  history.record([kernelWith(1000)]);
  history.record([anAttachedKernel()]);
  expect(timesOf(history)).toEqual([1000]);
});

it('forgets what is older than the window, also of a kernel without news', () => {
  const history = new UsageHistory(10);
  history.record([
    kernelWith(1000, 1005),
    anAttachedKernel({ kernel_id: 'k2', samples: [aSample({ t: 1012 })] })
  ]);
  expect(timesOf(history)).toEqual([1005]);
  expect(history.get('k2')).toHaveLength(1);
});

it('forgets a kernel that is gone', () => {
  const history = new UsageHistory();
  history.record([kernelWith(1000)]);
  history.record([]);
  expect(history.get('k1')).toEqual([]);
});
