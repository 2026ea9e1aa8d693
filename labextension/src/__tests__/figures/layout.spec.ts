import {
  groupByNode,
  layoutDevice,
  nodeOpens,
  showsNodes
} from '../../figures/layout';
import { queuedFor, resizeLimit, wantedMilli } from '../../figures/room';
import {
  aDevice,
  anAttachedKernel,
  aPool,
  aQueueEntry,
  aShare
} from '../samples';

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

it('says of a device that lends nothing that nothing of it is free', () => {
  const [segment] = layoutDevice(aDevice({ healthy: false }));
  expect(segment.kind).toBe('unusable');
});

describe('nodes', () => {
  const device = (node: string, number: number, mine = false) =>
    aDevice({
      id: `${node}/${number}`,
      node,
      shares: mine ? [aShare({ mine, milli: 500 })] : []
    });

  it('keep the order of the pool', () => {
    const groups = groupByNode([
      device('b', 0),
      device('a', 0),
      device('b', 1)
    ]);
    expect(groups.map(g => [g.node, g.devices.length])).toEqual([
      ['b', 2],
      ['a', 1]
    ]);
  });

  it('have no heading where there is one with a few devices', () => {
    const few = groupByNode([device('a', 0), device('a', 1)]);
    expect(showsNodes(few)).toBe(false);
    const single = [device('a', 0), device('b', 0)];
    expect(showsNodes(groupByNode(single))).toBe(false);
    expect(showsNodes(groupByNode([...single, device('b', 1)]))).toBe(true);
  });

  it('begin folded where there are many, except for those with own shares', () => {
    const many = Array.from({ length: 9 }, (_, i) => device('a', i));
    const groups = groupByNode([...many, device('b', 0, true)]);
    expect(groups.map(group => nodeOpens(group, groups))).toEqual([
      false,
      true
    ]);
    const few = groupByNode([device('a', 0), device('b', 0)]);
    expect(few.map(group => nodeOpens(group, few))).toEqual([true, true]);
  });
});

describe('what is queued for a device', () => {
  it('is what the pool keeps it for', () => {
    const wanted = aQueueEntry({ wants: ['node1/0'] });
    const other = aQueueEntry({ wants: ['node1/1'] });
    const none = aQueueEntry();
    expect(queuedFor(aDevice(), [none, other, wanted])).toEqual([wanted]);
  });

  it('is counted in compute also when memory was asked for', () => {
    const device = aDevice({ usable_mib: 8000 });
    expect(wantedMilli(aQueueEntry({ milli: 300 }), device)).toBe(300);
    expect(wantedMilli(aQueueEntry({ milli: 0, mib: 2000 }), device)).toBe(250);
  });
});

describe('the largest share a kernel could have', () => {
  const limit = (
    devices: ReturnType<typeof aDevice>[],
    held = ['node1/0'],
    ok = true
  ) => resizeLimit(anAttachedKernel({ devices: held }), aPool({ ok, devices }));
  const taken = (milli: number, mib = Math.floor(7.936 * milli)) =>
    aDevice({ shares: [aShare({ milli, mib, mine: true })] });

  it('is what it holds and what is free beside it', () => {
    expect(limit([taken(700)])).toBe(500);
  });

  it('is less where memory is short', () => {
    expect(limit([taken(700, 7936 - 794)])).toBe(300);
  });

  it('is the least of its devices', () => {
    const second = { ...taken(900), id: 'node1/1' };
    expect(limit([taken(200), second], ['node1/0', 'node1/1'])).toBe(300);
  });

  it('is not known without the pool, or without its device', () => {
    expect(limit([taken(700)], ['node1/0'], false)).toBeNull();
    expect(limit([taken(700)], ['gone/0'])).toBeNull();
  });

  it('is a whole device at most', () => {
    expect(limit([aDevice()])).toBe(1000);
  });
});
