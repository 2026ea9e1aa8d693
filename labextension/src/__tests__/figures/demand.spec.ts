import { nullTranslator } from '@jupyterlab/translation';
import type { GpuPool } from '../../api/types';
import { demandOf } from '../../figures/demand';
import { reachable } from '../../figures/room';
import { demandSentence, demandWord } from '../../text/demand';
import { aDevice, aPool, aQueueEntry, aShare } from '../samples';

const trans = nullTranslator.load('jupyter_gpupool');

/** A device of which so much is lent, with memory to match. */
function lent(milli: number, part: Partial<GpuPool.IDevice> = {}) {
  const mib = Math.floor((7936 * milli) / 1000);
  return aDevice({ shares: [aShare({ milli, mib })], ...part });
}

function said(pool: GpuPool.IPool): [string | null, string] {
  const demand = demandOf(pool);
  return [demandWord(demand, trans), demandSentence(demand, trans)];
}

it.each([
  ['nothing is in use', [0, 0], 'quiet', '1'],
  ['a quarter is in use', [500, 0], 'quiet', '1'],
  ['a little is kept for somebody', [1, 1], 'quiet', '0.99'],
  ['what is free is no whole hundredth', [205, 1000], 'room', '0.79'],
  ['half a device is free', [500, 800], 'room', '0.5'],
  ['only smaller pieces are free', [510, 800], 'busy', '0.49'],
  ['the least useful piece is free', [950, 1000], 'busy', '0.05']
] as const)('when %s', (_, milli, level, most) => {
  const devices = milli.map(m => lent(m));
  expect(demandOf(aPool({ devices })).level).toBe(level);
  expect(said(aPool({ devices }))).toEqual([
    null,
    `You can have up to ${most} GPU now.`
  ]);
});

it('is full when no piece is worth asking for', () => {
  const devices = [lent(1000), lent(960)];
  expect(said(aPool({ devices }))).toEqual([
    'full',
    'All is in use; a request would wait.'
  ]);
});

it('is full when compute is free but memory is not', () => {
  const shares = [aShare({ milli: 200, mib: 7936 })];
  const device = aDevice({ shares });
  expect(reachable(device)).toBe(0);
  expect(said(aPool({ devices: [device] }))[0]).toBe('full');
});

it('counts who waits, and says for how long if anybody knows', () => {
  const devices = [lent(300)];
  const first = aQueueEntry({ eta_seconds: 130 });
  expect(said(aPool({ devices, queue: [first, aQueueEntry()] }))).toEqual([
    '2 waiting',
    '0.7 free, up to 0.7 on one GPU; the first waits about 3 min more.'
  ]);
  const unknown = aQueueEntry({ eta_seconds: null });
  expect(said(aPool({ devices, queue: [unknown] }))[1]).toBe(
    '0.7 free, up to 0.7 on one GPU.'
  );
});

it('does not count devices that do not lend', () => {
  const silent = lent(0, { healthy: false });
  expect(demandOf(aPool({ devices: [silent, lent(600)] }))).toMatchObject({
    level: 'busy',
    devices: 1,
    lent: 600,
    free: 400
  });
  expect(said(aPool({ devices: [silent] }))).toEqual([
    null,
    'No GPU takes requests now.'
  ]);
});
