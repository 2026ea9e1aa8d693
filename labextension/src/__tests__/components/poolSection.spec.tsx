import { fireEvent, render, screen, within } from '@testing-library/react';
import type { GpuPool } from '../../api/types';
import { PoolSection } from '../../components/PoolSection';
import type { IContext } from '../../components/context';
import { EMPTY_STATE } from '../../model/reduce';
import { h } from '../../ui/jsx';
import { aDevice, aPool, aQueueEntry, aShare } from '../samples';
import { SidebarFixture } from '../sidebarFixture';

let fixture: SidebarFixture;
let context: IContext;

beforeEach(() => {
  fixture = new SidebarFixture();
  context = fixture.context;
});

afterEach(() => fixture.dispose());

describe('the pool', () => {
  function pool(devices: GpuPool.IDevice[], part: Partial<GpuPool.IPool> = {}) {
    const state = { ...EMPTY_STATE, pool: aPool({ devices, ...part }) };
    return <PoolSection state={state} context={context} />;
  }

  const many = (count: number, node = 'n') =>
    Array.from({ length: count }, (_, index) =>
      aDevice({ id: `${node}/${index}`, node })
    );

  it('shows each device as a meter and its shares as a list', () => {
    const mine = aShare({ lease_id: 'm', mine: true, label: 'a.ipynb' });
    const idle = aShare({
      lease_id: 'o',
      user: 'eve',
      label: '',
      in_use: false
    });
    render(pool([aDevice({ shares: [mine, idle] }), aDevice({ id: 'n/1' })]));
    screen.getByText('1.5 of 2 GPUs free');
    const meter = screen.getByRole('meter', {
      name: 'Compute in use on GPU 0 on node1'
    });
    expect(meter.getAttribute('aria-valuenow')).toBe('0.5');
    const shares = within(
      screen.getByRole('list', { name: 'Shares of GPU 0 on node1' })
    ).getAllByRole('listitem');
    expect(shares.map(item => item.textContent)).toEqual([
      'a.ipynb (you)0.25 · in use',
      'eve0.25 · reserved'
    ]);
  });

  it('says in each place how much can be had, rounded down', () => {
    const other = (id: string, milli: number) =>
      aDevice({ id, shares: [aShare({ lease_id: id, milli, mib: 1 })] });
    const { container } = render(
      pool([
        other('node1/0', 205),
        other('node1/1', 1000),
        aDevice({ id: 'node2/0', node: 'node2', healthy: false })
      ])
    );
    screen.getByText('0.79 of 2 GPUs free');
    screen.getByText('0.79 of 2 free');
    screen.getByText('0.79 free');
    screen.getByText('You can have up to 0.79 GPU now.');
    expect(
      container.querySelector('.jp-GpuPool-cell')!.getAttribute('title')
    ).toMatch(/: 0\.79 free$/);
  });

  it('labels software GPUs and devices that do not answer', () => {
    render(pool([aDevice({ healthy: false })]));
    screen.getByText('software');
    screen.getByText('not answering');
    screen.getByText('not available');
  });

  it('says of a drained device so, and why', () => {
    const health_reason = 'node n is drained (new fans)';
    render(pool([aDevice({ healthy: false, drained: true, health_reason })]));
    screen.getByText('drained');
    screen.getByText(health_reason);
    expect(screen.queryByText('not answering')).toBeNull();
  });

  it('says what one can have', () => {
    render(pool([aDevice({ shares: [aShare({ milli: 900, mib: 7000 })] })]));
    screen.getByText('You can have up to 0.1 GPU now.');
  });

  it('shows what is queued for a device below its bar', () => {
    const queue = [aQueueEntry({ wants: ['node1/0'] })];
    render(pool([aDevice(), aDevice({ id: 'node1/1' })], { queue }));
    const [first, second] = within(
      screen.getByRole('list', { name: 'Devices' })
    ).getAllByRole('listitem');
    within(first).getByText('bob waits for 0.8 of it');
    expect(within(second).queryByText(/waits/)).toBeNull();
  });

  it('keeps what was known of a pool that does not answer, as such', () => {
    render(pool([aDevice()], { ok: false }));
    screen.getByText('as it was');
    screen.getByRole('meter');
    // How much it is asked for now nobody knows.
    expect(screen.queryByText(/You can have/)).toBeNull();
  });

  it.each(['server', 'missing'] as const)(
    'offers nothing of before while the Jupyter server is away (%s)',
    kind => {
      const problem = { kind, message: 'Failed to fetch' };
      const state = { ...EMPTY_STATE, ready: true, pool: aPool(), problem };
      render(<PoolSection state={state} context={context} />);
      screen.getByText('as it was');
      expect(
        screen.getByRole('meter').closest('[data-stale=true]')
      ).toBeTruthy();
      expect(screen.queryByText(/You can have/)).toBeNull();
    }
  );

  describe('with many devices', () => {
    it('shows one line for each until it is unfolded', () => {
      render(pool(many(5)));
      const name = screen.getByRole('button', { name: 'GPU 3 on n' });
      expect(name.getAttribute('aria-expanded')).toBe('false');
      expect(screen.queryByText(/reserved, .* used/)).toBeNull();
      fireEvent.click(name);
      expect(name.getAttribute('aria-expanded')).toBe('true');
      screen.getByText(/reserved, .* used/);
    });

    it('unfolds where one has a share oneself', () => {
      const [first, ...others] = many(5);
      render(pool([{ ...first, shares: [aShare({ mine: true })] }, ...others]));
      const open = screen
        .getAllByRole('button', { name: /^GPU \d on n$/ })
        .map(button => button.getAttribute('aria-expanded'));
      expect(open).toEqual(['true', 'false', 'false', 'false', 'false']);
    });

    it('folds whole nodes to one strip each, and unfolds some devices', () => {
      render(pool([...many(30, 'a'), ...many(20, 'b')]));
      expect(screen.getAllByRole('meter')).toHaveLength(2);
      const strip = screen.getByRole('meter', {
        name: 'Compute in use on node a'
      });
      expect(strip.getAttribute('aria-valuetext')).toBe('0 of 30 GPUs');
      expect(strip.children).toHaveLength(30);
      fireEvent.click(screen.getByRole('button', { name: 'b' }));
      const group = within(screen.getByRole('group', { name: 'Node b' }));
      expect(group.getAllByRole('listitem')).toHaveLength(8);
      expect(context.folds.isOpen('node:b', false)).toBe(true);
      const more = group.getByRole('button', { name: '12 more GPUs of b' });
      fireEvent.click(more);
      expect(group.getAllByRole('listitem')).toHaveLength(20);
      const fewer = group.getByRole('button', { name: 'Fewer GPUs of b' });
      // The focus of whoever has pressed it stays.
      expect(fewer).toBe(more);
      fireEvent.click(fewer);
      expect(group.getAllByRole('listitem')).toHaveLength(8);
    });

    it('shows of a node only what one has there oneself', () => {
      const [first, second, ...rest] = many(10, 'a');
      const mine = { ...second, shares: [aShare({ mine: true, milli: 250 })] };
      render(pool([first, mine, ...rest, ...many(10, 'b')]));
      const group = within(screen.getByRole('group', { name: 'Node a' }));
      const [own, ...others] = group.getAllByRole('listitem');
      expect(own.getAttribute('aria-label')).toBe('GPU 1 on a');
      // The rest of them is the list of shares of that device.
      expect(others.map(item => item.textContent)).toEqual([
        'other.ipynb (you)0.25 · in use'
      ]);
      group.getByRole('button', { name: '9 more GPUs of a' });
    });

    it('shows a few nodes, one’s own first, until the others are asked for', () => {
      const nodes = Array.from({ length: 25 }, (_, index) =>
        many(8, `n${index}`)
      );
      const [last] = nodes[24];
      nodes[24][0] = { ...last, shares: [aShare({ mine: true })] };
      render(pool(nodes.flat()));
      const shown = () =>
        screen
          .getAllByRole('group')
          .map(group => group.getAttribute('aria-label'));
      expect(shown()).toEqual(
        ['n24', 'n0', 'n1', 'n2', 'n3', 'n4'].map(name => `Node ${name}`)
      );
      fireEvent.click(
        screen.getByRole('button', {
          name: '19 more nodes, 152 of 152 free'
        })
      );
      expect(shown()).toHaveLength(25);
      fireEvent.click(screen.getByRole('button', { name: 'Fewer nodes' }));
      expect(shown()).toHaveLength(6);
    });

    it('finds GPUs by node, holder, notebook and whether they are free', () => {
      const [first, ...rest] = many(9, 'a');
      const held = {
        ...first,
        free_milli: 0,
        shares: [aShare({ user: 'maria', milli: 1000 })]
      };
      render(pool([held, ...rest, ...many(9, 'b')]));
      const filter = screen.getByRole('searchbox', { name: 'Filter the GPUs' });
      const found = (value: string) => {
        fireEvent.change(filter, { target: { value } });
        return screen
          .queryAllByRole('listitem')
          .map(item => item.getAttribute('aria-label'));
      };
      expect(found('Maria')).toEqual(['GPU 0 on a']);
      expect(found('other.ip a/0')).toEqual(['GPU 0 on a']);
      expect(found('b/ free')).toHaveLength(9);
      expect(found('maria free')).toEqual([]);
      screen.getByText('No GPU of the pool is like that.');
    });

    it('needs no filter for few', () => {
      render(pool([...many(4, 'a'), ...many(4, 'b')]));
      expect(screen.queryByRole('searchbox')).toBeNull();
    });

    it('counts what does not lend', () => {
      const [first, ...others] = many(10, 'a');
      render(pool([{ ...first, healthy: false }, ...others]));
      screen.getByText('1 GPU is not available.');
      screen.getByText('9 of 9 free');
    });
  });

  it('says what to do when there is no device', () => {
    render(pool([]));
    screen.getByText(/Start a node/);
  });

  it('says who can lend one where the pool borrows its nodes', () => {
    render(pool([], { lenders: ['slurm'] }));
    screen.getByText(/slurm can lend one when it is needed/);
  });

  it('can be folded', () => {
    render(pool([aDevice()]));
    const toggle = screen.getByRole('button', { name: /Pool/ });
    fireEvent.click(toggle);
    expect(toggle.getAttribute('aria-expanded')).toBe('false');
    expect(screen.queryByRole('meter')).toBeNull();
  });
});
