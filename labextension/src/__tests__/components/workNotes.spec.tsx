import { fireEvent, render, screen, within } from '@testing-library/react';
import type { GpuPool } from '../../api/types';
import { CommandIDs } from '../../commands/ids';
import { KernelRow } from '../../components/KernelRow';
import type { IContext } from '../../components/context';
import { enoughShare } from '../../figures/room';
import { h } from '../../ui/jsx';
import { aDevice, aKernel, anAttachedKernel, aPool, aShare } from '../samples';
import { SidebarFixture } from '../sidebarFixture';

let fixture: SidebarFixture;
let context: IContext;
let executed: [string, unknown][];

beforeEach(() => {
  fixture = new SidebarFixture();
  ({ context, executed } = fixture);
});

afterEach(() => fixture.dispose());

const GIB = 1024 ** 3;

function show(kernel: GpuPool.IKernel): HTMLElement {
  const { container } = render(
    <ul>
      <KernelRow
        kernel={kernel}
        pending={false}
        failure={undefined}
        context={context}
      />
    </ul>
  );
  return container;
}

function using(
  usage: Partial<GpuPool.IUsage>,
  part: Partial<GpuPool.IKernel> = {}
): GpuPool.IKernel {
  const kernel = anAttachedKernel(part);
  return {
    ...kernel,
    usage: { ...anAttachedKernel().usage!, utilization: 1, ...usage }
  };
}

const parked = { state: 'parked', share: null, device: null } as const;
const resets = () => screen.queryAllByRole('button', { name: /^Reset/ });

describe('work under way', () => {
  it('is named after two seconds, and can be reset', () => {
    const row = show(
      using({ work: 'running', kernel: 'forever', work_seconds: 14.2 })
    );
    expect(row.textContent).toContain('100 % busy · forever, 14 s');
    fireEvent.click(resets()[0]);
    expect(executed).toEqual([
      [CommandIDs.reset, { kernelId: 'k1', quiet: true }]
    ]);
  });

  it.each([
    { work: 'running', kernel: 'short', work_seconds: 1.9 },
    { work: '', kernel: '', work_seconds: 0 },
    {}
  ] as const)('is not worth a word (%j)', usage => {
    const row = show(using(usage));
    expect(row.textContent).toContain('100 % busy');
    expect(row.textContent).not.toContain('·  ');
    expect(row.textContent).not.toContain('short');
    expect(resets()).toEqual([]);
  });

  it('is named although it has no name', () => {
    const row = show(using({ work: 'running', kernel: '', work_seconds: 3 }));
    expect(row.textContent).toMatch(/100 % busy · \D+, 3 s/);
  });
});

describe('work after the end of its lease', () => {
  it('is draining', () => {
    show(
      using({ work: 'draining', kernel: 'forever', work_seconds: 12 }, parked)
    );
    within(screen.getByRole('note')).getByText('draining: forever since 12 s');
    expect(resets()).toHaveLength(1);
  });

  it('is draining as well when the last report was before that end', () => {
    const released = {
      reason: 'release',
      message: '',
      memory: { bytes: 0, place: 'device' },
      draining: true
    } as GpuPool.IReleased;
    show(
      using(
        { work: 'running', kernel: 'forever', work_seconds: 12 },
        { ...parked, released }
      )
    );
    screen.getByText('draining: forever since 12 s');
  });

  it('is stopped and goes on with the next lease', () => {
    show(using({ work: 'stopped', kernel: 'forever' }, parked));
    screen.getByText('forever is stopped; it goes on when a GPU is attached.');
    expect(resets()).toHaveLength(1);
  });

  it('is not shown of a session that is gone', () => {
    show(
      using(
        { work: 'stopped', kernel: 'forever' },
        { ...parked, session_id: null }
      )
    );
    expect(screen.queryByRole('note')).toBeNull();
  });
});

describe('a session that failed', () => {
  const failure = {
    failure: 700,
    failure_name: 'illegal address',
    failed_kernel: 'bad',
    failed_cell: '[3]'
  };

  it.each([parked, {}])('is red, not %j', part => {
    const row = show(using(failure, part));
    expect(screen.getByRole('status').textContent).toBe('failed');
    expect(row.querySelector('[data-state="failed"]')).not.toBeNull();
    const note = screen.getByRole('note');
    for (const part of ['[3]', 'illegal address', 'bad']) {
      expect(note.textContent).toContain(part);
    }
    fireEvent.click(within(note).getByRole('button', { name: /^Reset/ }));
    expect(executed).toEqual([
      [CommandIDs.reset, { kernelId: 'k1', quiet: true }]
    ]);
  });

  it('is one only while the session lives', () => {
    show(using(failure, { ...parked, state: 'none', session_id: null }));
    expect(screen.getByRole('status').textContent).toBe('no GPU');
  });
});

describe('out of memory', () => {
  const refused = {
    asked: 3 * GIB,
    share: 1.55 * GIB,
    used: 0,
    largest_free: 1.55 * GIB,
    needed: 3 * GIB,
    device: 0,
    larger_share: null
  };
  const kernel = () => using({ out_of_memory: refused });
  const withFree = (...shares: GpuPool.IDeviceShare[]) =>
    aPool({
      devices: [
        aDevice({ shares: [aShare({ mine: true, milli: 200 }), ...shares] })
      ]
    });

  it('says what was asked, had and used, and offers a share that is enough', async () => {
    fixture.server.answer = withFree();
    await fixture.model.refresh();
    show(kernel());
    const note = screen.getByRole('note');
    expect(note.textContent).toContain(
      'out of memory: 3 GiB asked, the share has 1.6 GiB, 0 B used'
    );
    fireEvent.click(within(note).getByRole('button'));
    expect(executed).toEqual([
      [CommandIDs.resize, { kernelId: 'k1', share: '0.4', quiet: true }]
    ]);
  });

  it('offers nothing where the pool has no room for it', async () => {
    fixture.server.answer = withFree(aShare({ lease_id: 'l2', milli: 700 }));
    await fixture.model.refresh();
    show(kernel());
    expect(within(screen.getByRole('note')).queryByRole('button')).toBeNull();
  });

  it.each([
    [3 * GIB, 0, '0.4'],
    [3 * GIB, 0.5 * GIB, '0.5'],
    [7.75 * GIB, 0, '1'],
    [8 * GIB, 0, null],
    [0.5 * GIB, 0, null]
  ])('%p bytes beside %p used need %p', (asked, used, share) => {
    const needed = asked + used;
    const out_of_memory = { ...refused, asked, used, needed };
    const found = using({ out_of_memory });
    expect(enoughShare(found, withFree(), 1000)).toBe(share);
  });

  it('is not offered what nobody knows', () => {
    expect(enoughShare(kernel(), null, 1000)).toBeNull();
    expect(enoughShare(kernel(), withFree(), null)).toBeNull();
    expect(enoughShare(aKernel(), withFree(), 1000)).toBeNull();
  });
});

it('names all of several devices', () => {
  const share = { milli: 500, mib: 3968, count: 2 };
  const row = show(anAttachedKernel({ share, devices: ['vm/0', 'vm/1'] }));
  expect(row.textContent).toContain('2 × 0.5 of GPU 0 and 1 on vm');
  expect(row.textContent).toContain('/ 7.8 GiB');
});

it('says by what a share is held', () => {
  const row = show(anAttachedKernel({ by: 'attach' }));
  expect(row.textContent).toContain('by %gpu attach');
});
