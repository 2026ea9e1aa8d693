import { act, fireEvent, render, screen, within } from '@testing-library/react';
import { learn } from '../../api/catalogue';
import type { GpuPool } from '../../api/types';
import { CommandIDs } from '../../commands/ids';
import { KernelRow } from '../../components/KernelRow';
import type { IContext } from '../../components/context';
import { h } from '../../ui/jsx';
import { CATALOGUE } from '../catalogue';
import {
  aKernel,
  anAttachedKernel,
  aQueuePlace,
  aSample,
  aWarnedKernel,
  words
} from '../samples';
import { SidebarFixture } from '../sidebarFixture';

learn(CATALOGUE);

let fixture: SidebarFixture;
let context: IContext;
let executed: [string, unknown][];

beforeEach(() => {
  fixture = new SidebarFixture();
  ({ context, executed } = fixture);
});

afterEach(() => fixture.dispose());

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

describe('the row of a kernel', () => {
  it('attaches the default share at a press', () => {
    render(row(aKernel()));
    fireEvent.click(screen.getByRole('button', { name: /^Attach/ }));
    expect(executed).toEqual([
      [CommandIDs.attach, { kernelId: 'k1', quiet: true, share: '0.2' }]
    ]);
  });

  it('says that calls wait for a pool that is silent', () => {
    const message = 'The GPU pool has not answered for so long.';
    render(row(anAttachedKernel({ silent: true, message })));
    const detail = screen.getByText(/^waits for the GPU pool · /);
    expect(detail.parentElement?.title).toContain(message);
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
    screen.getByText('2 × 0.5 of GPU 0 on node1, GPU 0 on node2 (software)');
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
    screen.getByText('0.2 of GPU 0 on node1 (software)');
    screen.getByText('40 % busy');
    const memory = screen.getByRole('meter', {
      name: 'GPU memory of train.ipynb'
    });
    expect(memory.getAttribute('aria-valuenow')).toBe('300');
    expect(memory.getAttribute('aria-valuemax')).toBe('1587');
    expect(memory.getAttribute('aria-valuetext')).toBe(
      '300 MiB of 1.5 GiB, 400 MiB at most'
    );
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
    const queue = aQueuePlace({ place: 2, reason: '0.5 is not free' });
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
    screen.getByText('Memory: being moved off its GPU');
    rerender(leaving('host'));
    screen.getByText('Memory: being moved from host memory to disk');
    const sentence = 'Its memory stays on its device while it is parked.';
    rerender(
      row(
        anAttachedKernel({
          memory: {
            ...memory,
            place: 'device',
            obstacles: [words(sentence)],
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
    ).toEqual([sentence]);
    // How the share is kept is no news, but can be looked up.
    expect(screen.getByTitle(/Compute share: kept by turns/)).toBeTruthy();
  });

  it('says that its calls attach by themselves', () => {
    const auto = { share: '0.3', count: 2, strict: false };
    const { rerender } = render(row(aKernel({ auto })));
    screen.getByText('auto 2 × 0.3');
    rerender(row(anAttachedKernel({ auto, by: 'auto' })));
    screen.getByText('0.2 of GPU 0 on node1 (software) · held by %gpu auto');
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

  it('charts compute, memory and network, and says the same in words', async () => {
    fixture.server.list = [
      anAttachedKernel({
        samples: [
          aSample({ t: 1000, utilization: 0.2, to_device_bps: 4096 }),
          aSample({ t: 1001, utilization: 0.4, to_device_bps: 1024 })
        ]
      })
    ];
    await fixture.model.refresh();
    await act(async () => {
      const watch = fixture.model.watchUsage();
      await fixture.model.refresh();
      watch.dispose();
    });
    render(row(anAttachedKernel()));
    const compute = screen.getByRole('meter', {
      name: 'Compute of train.ipynb'
    });
    expect(compute.getAttribute('aria-valuetext')).toBe(
      '40 % busy; in the last two minutes 30 % on average, 40 % at most'
    );
    expect(compute.querySelectorAll('path')[2].getAttribute('d')).toMatch(
      /^M119\.0,\d+\.\dL120\.0,/
    );
    screen.getByRole('img', {
      name: 'Network of train.ipynb: 1 KiB/s to the GPU, 1 KiB/s from it; at most 4 KiB/s and 1 KiB/s in the last two minutes'
    });
  });

  it('compares memory with the shares of all its devices', () => {
    const share = { milli: 200, mib: 1000, count: 2 };
    render(row(anAttachedKernel({ share })));
    const memory = screen.getByRole('meter', { name: /^GPU memory/ });
    expect(memory.getAttribute('aria-valuemax')).toBe('2000');
  });

  it('says why a share went back, and lets one undo it while that is offered', () => {
    const message =
      'Released after 10 min without use: 0.2 of n/0 is free again.';
    const released: GpuPool.IReleased = {
      reason: 'idle',
      message,
      draining: false,
      // Of another clock than the page's.
      at: 1000,
      age_seconds: 30,
      freed: { milli: 200, mib: 1587, count: 1, device: 'n/0' },
      memory: { bytes: 0, place: 'none' },
      undo_seconds: 90
    };
    const parked = aKernel({
      state: 'parked',
      reason: 'idle',
      message,
      released,
      memory: {
        place: 'device',
        activity: '',
        obstacles: [],
        enforcement: 'none',
        strict: false
      }
    });
    const { rerender } = render(row(parked));
    expect(screen.getAllByText(message)).toHaveLength(1);
    // Where nothing lies is no news.
    expect(screen.queryByText(/^Memory:/)).toBeNull();
    fireEvent.click(screen.getByRole('button', { name: /^Undo/ }));
    expect(executed).toEqual([
      [CommandIDs.undo, { kernelId: 'k1', quiet: true }]
    ]);
    const late = { ...released, age_seconds: 130, undo_seconds: 0 };
    rerender(row({ ...parked, released: late }));
    expect(screen.queryByRole('button', { name: /^Undo/ })).toBeNull();
    expect(screen.queryByText(message)).toBeNull();
    screen.getByText('Given back because it was not used.');
    // What cannot be undone is news for as long.
    rerender(row({ ...parked, released: { ...late, age_seconds: 100 } }));
    screen.getByText(message);
    // A server that was installed before the page says only when it was.
    const age_seconds = undefined as unknown as number;
    const before = (seconds: number) => {
      const at = Date.now() / 1000 - seconds;
      return row({ ...parked, released: { ...late, age_seconds, at } });
    };
    rerender(before(130));
    expect(screen.queryByText(message)).toBeNull();
    rerender(before(100));
    screen.getByText(message);
  });

  it('says that nothing came of a request, and not that there is no pool when there is', () => {
    const message = 'The GPU pool does not answer at unix:/run/pool.sock.';
    render(row(aKernel({ reason: 'pool-down', message })));
    expect(screen.getByRole('alert').textContent).toBe(
      'The pool did not answer when it was asked. It does now: ask again.'
    );
  });

  it('lets one choose how long it may be idle', () => {
    const idle = {
      ...aWarnedKernel(30).idle!,
      choice_minutes: 45,
      default_minutes: 10
    };
    render(row(anAttachedKernel({ idle })));
    const select = screen.getByRole<HTMLSelectElement>('combobox', {
      name: /^After how long without use/
    });
    expect(select.value).toBe('45');
    fireEvent.change(select, { target: { value: '60' } });
    fireEvent.change(select, { target: { value: '' } });
    expect(executed).toEqual([
      [CommandIDs.setIdle, { kernelId: 'k1', minutes: 60, quiet: true }],
      [CommandIDs.setIdle, { kernelId: 'k1', minutes: null, quiet: true }]
    ]);
    screen.getByRole('option', { name: '10 min (default)' });
  });

  it('keeps the clocks of kernel and GPU apart in a warning', () => {
    const idle = {
      ...aWarnedKernel(30).idle!,
      kernel_seconds: 6000,
      gpu_seconds: 540
    };
    render(row(aWarnedKernel(30, { idle })));
    screen.getByText(
      'No cell ran for 1 h 40 min, and nothing on the GPU for 9 min.'
    );
  });
});
