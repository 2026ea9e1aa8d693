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
    screen.getByText('1.5 of 2 free');
    const meter = screen.getByRole('meter', {
      name: 'Compute lent on node1/0'
    });
    expect(meter.getAttribute('aria-valuenow')).toBe('0.5');
    const shares = within(
      screen.getByRole('list', { name: 'Shares of node1/0' })
    ).getAllByRole('listitem');
    expect(shares.map(item => item.textContent)).toEqual([
      'a.ipynb (you)0.25 · in use',
      'eve0.25 · idle'
    ]);
  });

  it('labels software GPUs and devices that do not answer', () => {
    render(pool([aDevice({ healthy: false })]));
    screen.getByText('software GPU');
    screen.getByText('not answering');
    screen.getByText('not lent');
  });

  it('says of a drained device so, and why', () => {
    const health_reason = 'node n is drained (new fans)';
    render(pool([aDevice({ healthy: false, drained: true, health_reason })]));
    screen.getByText('drained');
    screen.getByText(health_reason);
    expect(screen.queryByText('not answering')).toBeNull();
  });

  it('says how much it is asked for, in one word and in numbers', () => {
    render(pool([aDevice({ shares: [aShare({ milli: 900, mib: 7000 })] })]));
    screen.getByText('busy');
    screen.getByText(/A request for up to 0\.1 is granted at once\./);
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
    expect(screen.queryByText('quiet')).toBeNull();
  });

  describe('with many devices', () => {
    it('shows one line for each until it is unfolded', () => {
      render(pool(many(5)));
      const name = screen.getByRole('button', { name: 'n/3' });
      expect(name.getAttribute('aria-expanded')).toBe('false');
      expect(screen.queryByText(/lent · .* used/)).toBeNull();
      fireEvent.click(name);
      expect(name.getAttribute('aria-expanded')).toBe('true');
      screen.getByText(/lent · .* used/);
    });

    it('unfolds where one has a share oneself', () => {
      const [first, ...others] = many(5);
      render(pool([{ ...first, shares: [aShare({ mine: true })] }, ...others]));
      const open = screen
        .getAllByRole('button', { name: /^n\// })
        .map(button => button.getAttribute('aria-expanded'));
      expect(open).toEqual(['true', 'false', 'false', 'false', 'false']);
    });

    it('folds whole nodes to one bar each', () => {
      render(pool([...many(30, 'a'), ...many(20, 'b')]));
      expect(screen.getAllByRole('meter')).toHaveLength(2);
      const bar = screen.getByRole('meter', {
        name: 'Compute lent on node a'
      });
      expect(bar.getAttribute('aria-valuetext')).toBe('0 of 30 GPUs');
      fireEvent.click(screen.getByRole('button', { name: 'b 20 of 20 free' }));
      const group = screen.getByRole('group', { name: 'Node b' });
      expect(within(group).getAllByRole('meter')).toHaveLength(20);
      expect(context.folds.isOpen('node:b', false)).toBe(true);
    });

    it('counts what does not lend', () => {
      const [first, ...others] = many(10, 'a');
      render(pool([{ ...first, healthy: false }, ...others]));
      screen.getByText('1 device does not lend.');
      screen.getByRole('button', { name: 'a 9 of 9 free' });
    });
  });

  it('says what to do when there is no device', () => {
    render(pool([]));
    screen.getByText(/Start a node/);
  });

  it('can be folded', () => {
    render(pool([aDevice()]));
    const toggle = screen.getByRole('button', { name: /Pool/ });
    fireEvent.click(toggle);
    expect(toggle.getAttribute('aria-expanded')).toBe('false');
    expect(screen.queryByRole('meter')).toBeNull();
  });
});
