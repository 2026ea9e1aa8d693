import { fireEvent, render, screen, within } from '@testing-library/react';
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
  clauses,
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

const NOTICE: GpuPool.INotice = {
  reason: 'reclaim',
  seconds_left: 28,
  explanation: 'project b is entitled to 0.50 GPU',
  said: clauses(
    words('project b is entitled to 0.50 GPU'),
    words('the session is parked')
  ),
  returns: true
};

const SMALLER = {
  code: 'help.smaller',
  params: {
    count: { kind: 'count' as const, value: 1 },
    milli: { kind: 'milli' as const, value: 300 }
  },
  text: '0.3 would fit now',
  first: '0.3 would fit now'
};

const EXPLANATION: GpuPool.IExplanation = {
  reason: 'full',
  said: words('0.5 is asked for, 0.3 is free.'),
  facts: { asked_milli: '500', free_milli: '300' },
  helps: [
    {
      action: 'smaller',
      said: SMALLER,
      request: { share: '0.3', nodes: 'one' },
      kernels: []
    },
    {
      action: 'wait',
      said: words('About a minute.'),
      request: null,
      kernels: []
    }
  ],
  project: 'default',
  place: 1,
  eta_seconds: null
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
    // It is not a matter of being idle: keeping it is nobody's to offer, nor is more of it.
    expect(screen.queryByRole('button', { name: /^Keep/ })).toBeNull();
    expect(screen.queryByRole('slider')).toBeNull();
  });

  it('shows where it waits, and lets it stop waiting', () => {
    render(
      row(
        aKernel({
          state: 'queued',
          returning: true,
          reason: 'reclaim',
          queue: aQueuePlace({ place: 2, reason: 'Nothing is free.' })
        })
      )
    );
    expect(
      screen.getByText(
        'Taken back for a project that is entitled to it. · Place 2 · Nothing is free.'
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
      queue: aQueuePlace({
        reason: '0.5 is asked for, 0.3 is free.',
        explanation: EXPLANATION,
        takes,
        cell: takes
      })
    });

  it('is not said twice', () => {
    const kernel = waiting(true);
    const said = clauses(EXPLANATION.said, SMALLER);
    const explanation = { ...EXPLANATION, said };
    render(row({ ...kernel, queue: { ...kernel.queue!, explanation } }));
    screen.getByText('Place 1 · 0.5 is asked for, 0.3 is free.');
    screen.getByText('0.3 would fit now');
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

  it('names notebooks of one’s own that could give back what they hold', async () => {
    fixture.server.list = [
      aKernel(),
      anAttachedKernel({ kernel_id: 'k2', label: 'compete.ipynb' })
    ];
    await fixture.model.refresh();
    const said = words('you hold 0.50 in compete.ipynb');
    const help = { action: 'release', said, request: null, kernels: ['k2'] };
    const explanation = { ...EXPLANATION, helps: [help] };
    const kernel = waiting(true);
    render(row({ ...kernel, queue: { ...kernel.queue!, explanation } }));
    screen.getByText('you hold 0.50 in compete.ipynb');
    fireEvent.click(
      screen.getByRole('button', { name: 'Detach the GPU from compete.ipynb' })
    );
    expect(executed).toEqual([
      [CommandIDs.detach, { kernelId: 'k2', quiet: true }]
    ]);
  });

  it('is only said where a share comes again by itself', () => {
    render(row(waiting(false)));
    expect(screen.getByText('0.3 would fit now')).toBeTruthy();
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

  it.each(['0', '9'])('asks nobody for %s GPUs', value => {
    render(row(aKernel()));
    open();
    fireEvent.change(screen.getByRole('textbox', { name: /^Number of GPUs/ }), {
      target: { value }
    });
    fireEvent.click(screen.getByRole('button', { name: /^Attach/ }));
    expect(executed).toEqual([]);
    expect(screen.getByRole('alert').textContent).toBe(
      'GPUs: a whole number from 1 to 8.'
    );
  });
});
