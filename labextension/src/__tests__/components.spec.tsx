import { nullTranslator } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { fireEvent, render, screen, within } from '@testing-library/react';
import React from 'react';
import { CommandIDs } from '../commands';
import type { IContext } from '../components/context';
import { KernelRow } from '../components/KernelRow';
import { PoolSection } from '../components/PoolSection';
import { Problem } from '../components/Problem';
import { QueueSection } from '../components/QueueSection';
import { Folds } from '../folds';
import { GpuPoolModel } from '../model';
import { EMPTY_STATE } from '../reduce';
import type { GpuPool } from '../tokens';
import {
  aDevice,
  aKernel,
  anAttachedKernel,
  aPool,
  aShare,
  aWarnedKernel
} from './samples';
import { Server, Services } from './server';

let model: GpuPoolModel;
let context: IContext;
let executed: [string, unknown][];

beforeEach(() => {
  model = new GpuPoolModel({
    serviceManager: new Services().services,
    api: new Server(),
    standby: 'never'
  });
  executed = [];
  const commands = new CommandRegistry();
  for (const id of Object.values(CommandIDs)) {
    commands.addCommand(id, { execute: args => executed.push([id, args]) });
  }
  const trans = nullTranslator.load('jupyter_gpupool');
  context = { model, commands, trans, folds: new Folds() };
});

afterEach(() => model.dispose());

function row(kernel: GpuPool.IKernel, pending = false, failure?: string) {
  return (
    <ul>
      <KernelRow
        kernel={kernel}
        pending={pending}
        failure={failure}
        context={context}
      />
    </ul>
  );
}

const NOTICE: GpuPool.INotice = {
  reason: 'reclaim',
  seconds_left: 28,
  explanation: 'project b is entitled to 0.50 GPU; the session is parked',
  returns: true
};

const EXPLANATION: GpuPool.IExplanation = {
  reason: 'full',
  sentence: '0.5 is asked for, 0.3 is free.',
  facts: { asked_milli: '500', free_milli: '300' },
  helps: [
    {
      action: 'smaller',
      sentence: 'A share of 0.3 would fit now.',
      ask: { share: '0.3', nodes: 'one' }
    },
    { action: 'wait', sentence: 'About a minute.', ask: null }
  ],
  project: 'default'
};

describe('a share that is asked back', () => {
  it('says for whom, when, and that nothing is lost', () => {
    render(
      row(
        anAttachedKernel({ state: 'warned', reason: 'reclaim', notice: NOTICE })
      )
    );
    expect(
      screen.getByText(
        'project b is entitled to 0.50 GPU. What is in GPU memory is kept; calls wait until the GPU comes again.'
      )
    ).toBeTruthy();
    expect(
      screen.getByRole('timer', {
        name: 'Time until the GPU of train.ipynb is taken back'
      })
    ).toBeTruthy();
    // It is not a matter of being idle: keeping it is nobody's to offer.
    expect(screen.queryByRole('button', { name: /^Keep/ })).toBeNull();
  });

  it('shows where it waits, and lets it stop waiting', () => {
    render(
      row(
        aKernel({
          state: 'queued',
          returning: true,
          reason: 'reclaim',
          queue: { place: 2, reason: 'Nothing is free.', eta_seconds: null }
        })
      )
    );
    expect(
      screen.getByText(
        'Taken back for a project that is owed it. · Place 2 · Nothing is free.'
      )
    ).toBeTruthy();
    fireEvent.click(screen.getByRole('button', { name: /^Cancel/ }));
    expect(executed).toEqual([
      [CommandIDs.cancelQueue, { kernelId: 'k1', quiet: true }]
    ]);
  });
});

describe('what would help a request that waits', () => {
  const waiting = (takes: boolean) =>
    aKernel({
      state: 'queued',
      queue: {
        place: 1,
        reason: EXPLANATION.sentence,
        eta_seconds: null,
        explanation: EXPLANATION,
        takes
      }
    });

  it('is a button where it can be had now', () => {
    render(row(waiting(true)));
    const list = screen.getByRole('list', {
      name: 'What would help train.ipynb'
    });
    expect(within(list).getAllByRole('listitem')).toHaveLength(2);
    fireEvent.click(
      within(list).getByRole('button', {
        name: 'Take 0.3 now for train.ipynb'
      })
    );
    expect(executed).toEqual([
      [
        CommandIDs.take,
        { kernelId: 'k1', quiet: true, share: '0.3', nodes: 'one' }
      ]
    ]);
  });

  it('is only said to a cell, which asks for itself', () => {
    render(row(waiting(false)));
    expect(screen.getByText('A share of 0.3 would fit now.')).toBeTruthy();
    expect(screen.queryByRole('button', { name: /^Take/ })).toBeNull();
  });
});

describe('more about a request', () => {
  const open = () =>
    fireEvent.click(screen.getByRole('button', { name: /^More about/ }));

  it('is asked for with it', () => {
    render(row(aKernel()));
    open();
    fireEvent.change(screen.getByRole('textbox', { name: /^Number of GPUs/ }), {
      target: { value: '2' }
    });
    fireEvent.change(
      screen.getByRole('combobox', { name: /^Where the GPUs/ }),
      {
        target: { value: 'any' }
      }
    );
    fireEvent.change(screen.getByRole('textbox', { name: /^Project/ }), {
      target: { value: ' research/vision ' }
    });
    fireEvent.click(screen.getByRole('checkbox', { name: /^Cap/ }));
    fireEvent.click(screen.getByRole('button', { name: /^Attach/ }));
    expect(executed).toEqual([
      [
        CommandIDs.attach,
        {
          kernelId: 'k1',
          quiet: true,
          share: '0.2',
          count: 2,
          nodes: 'any',
          strict: true,
          project: 'research/vision'
        }
      ]
    ]);
  });

  it('asks nobody for a number of GPUs that cannot be', () => {
    render(row(aKernel()));
    open();
    fireEvent.change(screen.getByRole('textbox', { name: /^Number of GPUs/ }), {
      target: { value: '0' }
    });
    fireEvent.click(screen.getByRole('button', { name: /^Attach/ }));
    expect(executed).toEqual([]);
    expect(screen.getByRole('alert').textContent).toBe(
      'GPUs: a whole number from 1 to 64.'
    );
  });
});

describe('the row of a kernel', () => {
  it('attaches the default share at a press', () => {
    render(row(aKernel()));
    fireEvent.click(screen.getByRole('button', { name: /^Attach/ }));
    expect(executed).toEqual([
      [CommandIDs.attach, { kernelId: 'k1', quiet: true, share: '0.2' }]
    ]);
  });

  it('attaches what was typed with the Enter key', () => {
    render(row(aKernel()));
    const input = screen.getByRole('textbox', {
      name: 'GPU share for train.ipynb'
    });
    fireEvent.change(input, { target: { value: ' 25% ' } });
    fireEvent.submit(input);
    expect(executed).toEqual([
      [CommandIDs.attach, { kernelId: 'k1', quiet: true, share: '25%' }]
    ]);
  });

  it('asks nobody for a share that cannot be, and says why', () => {
    render(row(aKernel()));
    const input = screen.getByRole('textbox');
    fireEvent.change(input, { target: { value: 'banana' } });
    fireEvent.click(screen.getByRole('button', { name: /^Attach/ }));
    expect(executed).toEqual([]);
    expect(screen.getByRole('alert').textContent).toMatch(/Not a share/);
    expect(input.getAttribute('aria-invalid')).toBe('true');
    expect(document.activeElement).toBe(input);
  });

  it('keeps the focus when Attach becomes Detach', () => {
    const { rerender } = render(row(aKernel()));
    const button = screen.getByRole('button', { name: /^Attach/ });
    button.focus();
    rerender(row(aKernel(), true));
    rerender(row(anAttachedKernel()));
    const detach = screen.getByRole('button', { name: /^Detach/ });
    expect(detach).toBe(button);
    expect(document.activeElement).toBe(detach);
  });

  it('keeps what one types while the state is refreshed', () => {
    const { rerender } = render(row(anAttachedKernel()));
    const input = screen.getByRole<HTMLInputElement>('textbox');
    expect(input.value).toBe('0.2');
    fireEvent.change(input, { target: { value: '0.3' } });
    rerender(row(anAttachedKernel({ device: 'node1/1' })));
    expect(input.value).toBe('0.3');
    fireEvent.click(screen.getByRole('button', { name: /^Resize/ }));
    expect(executed).toEqual([
      [CommandIDs.resize, { kernelId: 'k1', quiet: true, share: '0.3' }]
    ]);
    rerender(
      row(anAttachedKernel({ share: { milli: 300, mib: 2380, count: 1 } }))
    );
    expect(input.value).toBe('0.3');
    expect(screen.queryByRole('button', { name: /^Resize/ })).toBeNull();
  });

  it('names the devices of a share on several nodes', () => {
    const share = { milli: 500, mib: 3968, count: 2 };
    const devices = ['node1/0', 'node2/0'];
    render(row(anAttachedKernel({ share, devices })));
    screen.getByText(/2 × 0\.5 GPU.* · node1\/0, node2\/0/);
  });

  it('does nothing at a second press while the first is under way', () => {
    render(row(aKernel(), true));
    const button = screen.getByRole('button', { name: /^Attach/ });
    expect(button.getAttribute('aria-disabled')).toBe('true');
    fireEvent.click(button);
    expect(executed).toEqual([]);
  });

  it('says what is held, where, and how it is used', () => {
    render(row(anAttachedKernel()));
    expect(screen.getByRole('status').textContent).toBe('attached');
    screen.getByText('0.2 GPU · 1.5 GiB · node1/0');
    screen.getByText('40 % busy');
    const memory = screen.getByRole('meter', {
      name: 'GPU memory of train.ipynb'
    });
    expect(memory.getAttribute('aria-valuenow')).toBe('300');
    expect(memory.getAttribute('aria-valuemax')).toBe('1587');
  });

  it('offers Keep during a countdown', () => {
    render(row(aWarnedKernel(37)));
    screen.getByRole('timer');
    fireEvent.click(screen.getByRole('button', { name: /^Keep/ }));
    expect(executed).toEqual([
      [CommandIDs.keep, { kernelId: 'k1', quiet: true }]
    ]);
  });

  it('shows the place in the queue and why, and lets one leave it', () => {
    const queue = { place: 2, reason: '0.5 is not free', eta_seconds: null };
    render(row(aKernel({ state: 'queued', queue })));
    screen.getByText('Place 2 · 0.5 is not free');
    fireEvent.click(screen.getByRole('button', { name: /^Cancel/ }));
    expect(executed).toEqual([
      [CommandIDs.cancelQueue, { kernelId: 'k1', quiet: true }]
    ]);
  });

  it('says why the GPU is gone, in the server’s words if it has any', () => {
    const parked = aKernel({ state: 'parked', reason: 'idle' });
    const { rerender } = render(row(parked));
    screen.getByText('Given back because it was not used.');
    rerender(row({ ...parked, message: 'Unused for 600 s.' }));
    screen.getByText('Unused for 600 s.');
  });

  it('says where parked memory is, and beforehand what cannot be done', () => {
    const memory: GpuPool.IMemory = {
      place: 'host',
      activity: '',
      obstacles: [],
      enforcement: 'none',
      strict: false
    };
    const { rerender } = render(row(aKernel({ state: 'parked', memory })));
    screen.getByText('Memory: in host memory');
    rerender(
      row(
        aKernel({ state: 'queued', memory: { ...memory, activity: 'moving' } })
      )
    );
    screen.getByText('Memory: being moved to another node');
    const leaving = (place: 'device' | 'host') =>
      row(
        aKernel({
          state: 'parked',
          memory: { ...memory, place, activity: 'parking' }
        })
      );
    rerender(leaving('device'));
    screen.getByText('Memory: being moved off its device');
    rerender(leaving('host'));
    screen.getByText('Memory: being moved from host memory to disk');
    const sentence = 'Its memory stays on its device while it is parked.';
    rerender(
      row(
        anAttachedKernel({
          memory: {
            ...memory,
            place: 'device',
            obstacles: [sentence],
            enforcement: 'soft'
          }
        })
      )
    );
    const notes = screen.getByRole('list', { name: 'Session of train.ipynb' });
    expect(
      within(notes)
        .getAllByRole('listitem')
        .map(note => note.textContent)
    ).toEqual(['Compute share: enforced in turns', sentence]);
  });

  it('says that its calls attach by themselves', () => {
    const auto = { share: '0.3', count: 2 };
    const { rerender } = render(row(aKernel({ auto })));
    screen.getByText('auto 2 × 0.3');
    rerender(row(anAttachedKernel({ auto, by: 'auto' })));
    screen.getByText('0.2 GPU · 1.5 GiB · node1/0 · by %gpu auto');
  });

  it('shows a refusal that came late as an alert too', () => {
    const message = 'Waited 60 s: 0.5 of 0.9 is free.';
    render(row(aKernel({ reason: 'queue-timeout', message })));
    expect(screen.getByRole('alert').textContent).toBe(message);
    expect(screen.getAllByText(message)).toHaveLength(1);
  });

  it('shows a refusal as an alert', () => {
    render(row(aKernel(), false, '0.9 is not free.'));
    expect(screen.getByRole('alert').textContent).toBe('0.9 is not free.');
  });
});

describe('the pool', () => {
  function pool(devices: GpuPool.IDevice[], ok = true) {
    const state = { ...EMPTY_STATE, pool: aPool({ ok, devices }) };
    return <PoolSection state={state} context={context} />;
  }

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

describe('the queue', () => {
  const entry = {
    place: 1,
    user: 'bob',
    mine: false,
    kernel_id: null,
    label: 'big.ipynb',
    milli: 800,
    mib: 6348,
    reason: '0.5 of 0.8 is free',
    eta_seconds: 90
  };

  it('says who waits for what, and why', () => {
    const state = { ...EMPTY_STATE, pool: aPool({ queue: [entry] }) };
    render(<QueueSection state={state} context={context} />);
    screen.getByText('0.8 GPU');
    screen.getByText('6.2 GiB · 0.5 of 0.8 is free · about 90 s to wait');
    expect(screen.queryByRole('button', { name: /^Cancel/ })).toBeNull();
  });

  it('lets one withdraw only an own request', () => {
    const own = { ...entry, mine: true, kernel_id: 'k9' };
    const state = { ...EMPTY_STATE, pool: aPool({ queue: [own] }) };
    render(<QueueSection state={state} context={context} />);
    fireEvent.click(screen.getByRole('button', { name: /^Cancel/ }));
    expect(executed).toEqual([
      [CommandIDs.cancelQueue, { kernelId: 'k9', quiet: true }]
    ]);
  });
});

it.each([
  ['pool', '', /GPU pool does not answer/],
  ['pool', 'Nobody at unix:/p.', /^Nobody at unix:\/p\./],
  ['server', 'Failed to fetch', /Jupyter server does not answer.*Failed/],
  ['missing', '404', /jupyter server extension enable/]
] as const)(
  'says what to do about a problem (%s, %p)',
  (kind, message, text) => {
    render(
      <Problem
        problem={{ kind, message }}
        state={EMPTY_STATE}
        context={context}
      />
    );
    expect(screen.getByRole('alert').textContent).toMatch(text);
    fireEvent.click(screen.getByRole('button', { name: 'Retry now' }));
    expect(executed.map(([id]) => id)).toEqual([CommandIDs.refresh]);
  }
);
