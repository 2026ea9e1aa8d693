import { layoutDevice } from '../layout';
import { aDevice, aShare } from './samples';

describe('the bar of a device', () => {
  it('is one free piece when nothing is lent', () => {
    const segments = layoutDevice(aDevice());
    expect(segments).toHaveLength(1);
    expect(segments[0]).toMatchObject({ kind: 'free', start: 0, width: 100 });
  });

  it('is as wide as the shares are large, own ones first', () => {
    const segments = layoutDevice(
      aDevice({
        shares: [
          aShare({ lease_id: 'a', user: 'bob', milli: 250 }),
          aShare({ lease_id: 'b', user: 'ann', mine: true, milli: 100 })
        ]
      })
    );
    expect(segments.map(s => [s.kind, s.start, s.width])).toEqual([
      ['mine', 0, 10],
      ['other', 10, 25],
      ['free', 35, 65]
    ]);
  });

  it('has no free piece when the device is full', () => {
    const segments = layoutDevice(
      aDevice({ shares: [aShare({ milli: 1000 })] })
    );
    expect(segments.map(s => s.kind)).toEqual(['other']);
  });

  it('does not overflow when more than a device is reported', () => {
    const segments = layoutDevice(
      aDevice({
        shares: [
          aShare({ lease_id: 'a', milli: 900 }),
          aShare({ lease_id: 'b', milli: 600 })
        ]
      })
    );
    const end = segments.reduce((sum, s) => sum + s.width, 0);
    expect(end).toBeCloseTo(100, 6);
    expect(segments.map(s => s.kind)).toEqual(['other', 'other']);
  });

  it('marks a share that is not used', () => {
    const [segment] = layoutDevice(
      aDevice({ shares: [aShare({ in_use: false })] })
    );
    expect(segment.idle).toBe(true);
  });

  it('keeps its order whatever order the pool answers in', () => {
    const shares = ['c', 'a', 'b'].map(lease_id =>
      aShare({ lease_id, milli: 100 })
    );
    const order = (list: typeof shares) =>
      layoutDevice(aDevice({ shares: list })).map(s => s.key);
    expect(order(shares)).toEqual(order([...shares].reverse()));
  });
});
