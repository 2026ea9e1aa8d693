import { act, screen } from '@testing-library/react';
import { MessageLoop } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import axe from 'axe-core';
import { GpuSidebar } from '../../components/Sidebar';
import {
  aDevice,
  aKernel,
  anAttachedKernel,
  aPool,
  aQueueEntry,
  aQueuePlace,
  aSample,
  aShare,
  aWarnedKernel
} from '../samples';
import { SidebarFixture } from '../sidebarFixture';

let fixture: SidebarFixture;
let sidebar: GpuSidebar;

/** Lets the poll answer and Lumino and React draw. */
async function settle(): Promise<void> {
  await act(async () => {
    await fixture.model.refresh();
    MessageLoop.flush();
    await sidebar.renderPromise;
  });
}

beforeEach(async () => {
  fixture = new SidebarFixture();
  sidebar = new GpuSidebar(fixture.context);
  await act(async () => Widget.attach(sidebar, document.body));
});

afterEach(async () => {
  await act(async () => sidebar.dispose());
  fixture.dispose();
});

it('asks for samples only while it is seen', async () => {
  const { server } = fixture;
  await settle();
  expect(server.since.slice(-1)).toEqual([-120]);
  sidebar.hide();
  await settle();
  expect(server.since.slice(-1)).toEqual([undefined]);
  sidebar.show();
  await settle();
  expect(server.since.slice(-1)).toEqual([-120]);
});

it('draws nothing while it is hidden, and what is true when it is seen', async () => {
  await settle();
  screen.getByRole('listitem', { name: 'train.ipynb' });
  sidebar.hide();
  fixture.server.list = [aKernel({ label: 'other.ipynb' })];
  await settle();
  expect(sidebar.node.textContent).not.toContain('other.ipynb');
  sidebar.show();
  await settle();
  expect(sidebar.node.textContent).toContain('other.ipynb');
});

it('says how to come by a kernel where there is none', async () => {
  fixture.server.list = [];
  fixture.context.commands.addCommand('notebook:create-new', {
    execute: () => fixture.executed.push(['notebook', null])
  });
  await settle();
  screen.getByText(/No kernel runs/);
  screen.getByRole('button', { name: 'New notebook' }).click();
  expect(fixture.executed).toEqual([['notebook', null]]);
});

it('does not say that there is no kernel before it knows', () => {
  MessageLoop.flush();
  expect(sidebar.node.textContent).not.toMatch(/No kernel runs/);
});

describe('an accessibility checker finds nothing to object to', () => {
  // The checker looks at each element many times, jsdom is slow at that.
  jest.setTimeout(60_000);

  // Colours are not computed here; a real browser checks them.
  const check = async () => {
    const found = await axe.run(sidebar.node, {
      rules: { 'color-contrast': { enabled: false } }
    });
    return found.violations.map(({ id, nodes }) => [
      id,
      nodes.map(node => node.html)
    ]);
  };

  it('in a pool that is used', async () => {
    const samples = [aSample({ t: 1000 }), aSample({ t: 1001 })];
    fixture.server.answer = aPool({
      devices: [
        aDevice({
          shares: [aShare({ mine: true }), aShare({ lease_id: 'o' })]
        }),
        aDevice({ id: 'node1/1', healthy: false, health_reason: 'no answer' })
      ],
      queue: [
        aQueueEntry({ wants: ['node1/0'] }),
        aQueueEntry({ place: 2, mine: true, kernel_id: 'k3', label: 'q.ipynb' })
      ]
    });
    fixture.server.list = [
      anAttachedKernel({ samples }),
      aWarnedKernel(30, { kernel_id: 'k2', label: 'idle.ipynb' }),
      aKernel({
        kernel_id: 'k3',
        label: 'q.ipynb',
        state: 'queued',
        queue: aQueuePlace({ place: 2, reason: 'full', eta_seconds: 60 })
      })
    ];
    await settle();
    expect(await check()).toEqual([]);
  });

  it('in a pool of many nodes', async () => {
    fixture.server.answer = aPool({
      devices: Array.from({ length: 40 }, (_, index) => {
        const node = `n${index % 4}`;
        return aDevice({ id: `${node}/${index}`, node });
      })
    });
    await settle();
    expect(await check()).toEqual([]);
  });

  it('in a crowd of kernels, with the introduction', async () => {
    const done = jest.fn();
    fixture.context.introduction = { shown: true, done };
    fixture.context.front = () => 'k0';
    fixture.server.list = [
      ...Array.from({ length: 9 }, (_, index) =>
        aKernel({ kernel_id: `k${index}`, label: `n${index}.ipynb` })
      ),
      anAttachedKernel({ kernel_id: 'held', label: 'held.ipynb' })
    ];
    await settle();
    await act(async () =>
      screen.getByRole('button', { name: '8 kernels without a GPU' }).click()
    );
    expect(await check()).toEqual([]);
    const introduction = screen.getByRole('region', { name: 'Introduction' });
    expect(introduction.textContent).toContain('%%gpu 0.2');
    screen.getByRole('button', { name: 'Got it' }).click();
    expect(done).toHaveBeenCalledTimes(1);
  });

  it('in a pool that does not answer', async () => {
    fixture.server.answer = aPool({ ok: false, devices: [], error: 'nobody' });
    fixture.server.list = [];
    await settle();
    expect(await check()).toEqual([]);
  });
});
